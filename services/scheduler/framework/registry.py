"""Registry of the plugins that a configuration may name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.reasons import FRAMEWORK_REASONS, ReasonTexts

ArgsCheck = Callable[[Mapping[str, Any], str], None]
"""Raises a KoordError where arguments cannot be used; the second argument is their path in the configuration."""

NO_PLUGINS: Mapping[str, ArgsCheck | None] = {}


class Registry:
    """Plugins by name: those of this release, and those that Kubernetes and Koordinator have besides.

    A configuration may name the latter, because upstream's own does; they are skipped, and a note says so. Any other
    name is a mistake.

    Attributes:
        specs: name -> declaration, of the plugins of this release.
        defaults: name -> score weight of the plugins that every profile has unless it disables them, in order.
        built_in: plugins that the queue, the cycle and the gateway are made of; they cannot be disabled.
        unsupported: plugins of Kubernetes and Koordinator that this release does not have -> check of their arguments.
        retired: plugins that Kubernetes or Koordinator once had; guides of that time still name them.
        texts: texts of the reasons of all plugins and of the framework.
    """

    def __init__(
        self,
        specs: Sequence[PluginSpec],
        *,
        defaults: Mapping[str, int],
        built_in: frozenset[str] = frozenset(),
        unsupported: Mapping[str, ArgsCheck | None] = NO_PLUGINS,
        retired: frozenset[str] = frozenset(),
    ) -> None:
        """Collects declarations.

        Raises:
            ValueError: two plugins have one name, or give one reason different texts.
        """
        self.specs = {spec.name: spec for spec in specs}
        if len(self.specs) != len(specs):
            raise ValueError(f"two plugins have one name: {sorted(spec.name for spec in specs)}")
        self.defaults = defaults
        self.built_in = built_in
        self.unsupported = unsupported
        self.retired = retired
        self.texts = ReasonTexts(FRAMEWORK_REASONS, *(spec.reasons for spec in specs))

    def with_plugins(self, *specs: PluginSpec) -> "Registry":
        """The registry with more plugins: upstream's out-of-tree registry."""
        return Registry(
            (*self.specs.values(), *specs),
            defaults=self.defaults,
            built_in=self.built_in,
            unsupported=self.unsupported,
            retired=self.retired,
        )

    def has(self, name: str) -> bool:
        """Returns True for a name that a configuration may use."""
        return any(name in names for names in (self.specs, self.built_in, self.unsupported, self.retired))

    def names(self) -> list[str]:
        """The plugins of this release, in the order of their names."""
        return sorted((*self.specs, *self.built_in))
