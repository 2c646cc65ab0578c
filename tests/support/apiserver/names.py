"""What names, label keys and label values may be, and the words for what is wrong (apimachinery util/validation)."""

from __future__ import annotations

import re

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_CONFIG_KEY = r"[-._a-zA-Z0-9]+"
_LABEL_CHARACTERS = 63
_SUBDOMAIN_CHARACTERS = 253
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_KEY_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_CONFIG_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    f"or 'key-name', regex used for validation is '{_CONFIG_KEY}')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'({_QUALIFIED})?')"
)


def subdomain_faults(name: str) -> list[str]:
    """What is wrong with the name of most kinds."""
    return _faults(name, _SUBDOMAIN, _SUBDOMAIN_RULE, _SUBDOMAIN_CHARACTERS)


def label_faults(name: str) -> list[str]:
    """What is wrong with a name that has to be a DNS label."""
    return _faults(name, _LABEL, _LABEL_RULE, _LABEL_CHARACTERS)


def key_faults(key: str) -> list[str]:
    """What is wrong with the key of a label or annotation."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [
            f"a qualified name {_KEY_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    found = []
    if slash:
        found += [f"prefix part {fault}" for fault in subdomain_faults(prefix)] if prefix else [_empty("prefix part")]
    if not name:
        found.append(_empty("name part"))
    return found + [f"name part {fault}" for fault in _faults(name, _QUALIFIED, _KEY_RULE, _LABEL_CHARACTERS)]


def value_faults(value: str) -> list[str]:
    """What is wrong with the value of a label; an empty one is a value too."""
    return _faults(value, f"({_QUALIFIED})?", _VALUE_RULE, _LABEL_CHARACTERS)


def config_key_faults(key: str) -> list[str]:
    """What is wrong with a key of a ConfigMap's data, which may become the name of a file."""
    found = _faults(key, _CONFIG_KEY, _CONFIG_KEY_RULE, _SUBDOMAIN_CHARACTERS)
    if key in (".", ".."):
        return [*found, f"must not be '{key}'"]
    return [*found, "must not start with '..'"] if key.startswith("..") else found


def _empty(part: str) -> str:
    return f"{part} must be non-empty"


def _faults(text: str, pattern: str, rule: str, characters: int) -> list[str]:
    too_long = [f"must be no more than {characters} characters"] if len(text) > characters else []
    return too_long + ([] if re.fullmatch(pattern, text) else [rule])
