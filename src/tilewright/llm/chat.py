"""Conversations as prompts: by the template that stands beside a model's tokenizer.

Templates are Jinja's, written for `transformers`: rendered in a sandbox, as files are untrusted, with what
these templates may call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tilewright.driver import optional_module
from tilewright.support import InputError, ModelError

_TOKENS: Final = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """The text of a template, and the special tokens that it may name."""

    text: str
    tokens: Mapping[str, str]

    def render(self, messages: object) -> str:
        """The text that the answer to a conversation follows.

        ``messages`` have a ``role`` and a ``content``. Raises InputError for what is none, or what the
        template refuses, ModelError for a template that cannot be read, InstallationError without Jinja.
        """
        if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
            raise InputError(
                "a conversation is a list of messages", hint="[{'role': 'user', 'content': 'Hello'}]"
            )
        for message in messages:
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise InputError(
                    "a message has a role and a content", hint="{'role': 'user', 'content': 'Hello'}"
                )
        sandbox, jinja = optional_module("jinja2.sandbox"), optional_module("jinja2")
        environment = sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _json
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        environment.globals["raise_exception"] = _refuse
        try:
            template = environment.from_string(self.text)
        except (jinja.TemplateError, RecursionError) as error:
            raise ModelError(f"the chat template cannot be read: {error}") from None
        try:
            made = template.render(messages=[*messages], add_generation_prompt=True, **self.tokens)
        except (
            jinja.TemplateError,
            TypeError,
            ValueError,
            ArithmeticError,
            LookupError,
            RecursionError,
        ) as error:
            raise InputError(f"the chat template cannot say these messages: {error}") from None
        return str(made)


def chat_template(entries: Mapping[str, Any], file: str | None) -> ChatTemplate | None:
    """The template of a tokenizer's configuration, or that of a ``file`` of its own; None without one."""
    text = file or entries.get("chat_template")
    if isinstance(text, list):
        named = {each.get("name"): each.get("template") for each in text if isinstance(each, dict)}
        text = named.get("default")
    if not isinstance(text, str):
        return None
    found = {name: entries.get(name) for name in _TOKENS}
    contents = {name: t.get("content") if isinstance(t, dict) else t for name, t in found.items()}
    return ChatTemplate(text, {name: t for name, t in contents.items() if isinstance(t, str)})


def _json(value: object, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """What templates mean by ``tojson``: Jinja's own escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _refuse(message: object) -> None:
    """What templates call where they have no words for messages."""
    raise InputError(f"the chat template refuses these messages: {message}")
