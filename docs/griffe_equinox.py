"""Let the API pages see that an equinox module is a dataclass, so that its fields become its signature."""

import griffe

NOT_MODULES = {"NamedTuple", "Protocol", "Enum", "StrEnum", "TypedDict", "Executor"}


class NamedExpression(griffe.Expr):
    """An expression that stands for a name of the standard library."""

    def __init__(self, path: str):
        super().__init__()
        self.path_of_name = path

    @property
    def canonical_path(self) -> str:
        """The name that griffe looks for."""
        return self.path_of_name

    def iterate(self, *, flat: bool = True):
        """Yield the name as text."""
        yield self.path_of_name


class EquinoxModules(griffe.Extension):
    """Marks every subclass of `equinox.Module`; those are all classes with a base that is not in the list above."""

    def on_class_instance(self, *, cls: griffe.Class, **_) -> None:
        """Mark one class."""
        bases = {str(base).split("[")[0].split(".")[-1] for base in cls.bases}
        ordinary = bases and not bases & NOT_MODULES and not any(name.endswith(("Error", "Warning")) for name in bases)
        if ordinary and not cls.decorators:
            cls.decorators.append(
                griffe.Decorator(NamedExpression("dataclasses.dataclass"), lineno=None, endlineno=None)
            )

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_) -> None:
        """Read `eqx.field(...)` as `dataclasses.field(...)`; an abstract attribute is no field."""
        if str(attr.annotation).startswith(("eqx.AbstractVar", "eqx.AbstractClassVar")):
            attr.annotation = None
        if isinstance(attr.value, griffe.ExprCall) and str(attr.value.function) == "eqx.field":
            attr.value.function = NamedExpression("dataclasses.field")
