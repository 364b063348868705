"""The text of a YAML error, on one line."""

import yaml


def yaml_fault(error: yaml.YAMLError) -> str:
    """Returns place and problem, as `line 1, column 10: expected ',' or ']', but got '<stream end>'`; lines and columns
    count from 1.
    """
    if isinstance(error, yaml.MarkedYAMLError) and error.problem and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())
