"""Stages in the life of a pod at which hooks run, by upstream's names. Source: spec/node-agent.md 4.1."""

RUN_POD_SANDBOX = "PreRunPodSandbox"
CREATE_CONTAINER = "PreCreateContainer"
UPDATE_CONTAINER = "PreUpdateContainerResources"
START_CONTAINER, AFTER_START_CONTAINER = "PreStartContainer", "PostStartContainer"
AFTER_STOP_CONTAINER, AFTER_STOP_POD_SANDBOX = "PostStopContainer", "PostStopPodSandbox"
REMOVE_POD_SANDBOX = "PreRemoveRunPodSandbox"
"""Of NRI alone: a runtime proxy calls no server at it."""

STAGES = (
    RUN_POD_SANDBOX,
    CREATE_CONTAINER,
    START_CONTAINER,
    AFTER_START_CONTAINER,
    UPDATE_CONTAINER,
    AFTER_STOP_CONTAINER,
    AFTER_STOP_POD_SANDBOX,
    REMOVE_POD_SANDBOX,
)
