"""Conversations as prompts: what `transformers` makes of a template, and templates that are malformed."""

import pytest

from tilewright.llm.chat import ChatTemplate, chat_template
from tilewright.support import InputError, ModelError

pytest.importorskip("jinja2")
TEMPLATE = """{{ bos_token }}
{%- for message in messages %}
    {%- if message.role == "tool" %}{% continue %}{% endif %}
    {{- "<|" + message["role"] + "|>" + message["content"] | trim + eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "<|assistant|>" }}
{%- endif %}"""
ENTRIES = {"chat_template": TEMPLATE, "bos_token": "<s>", "eos_token": {"content": "</s>"}}
MESSAGES = [
    {"role": "system", "content": " Be brief. "},
    {"role": "tool", "content": "unsaid"},
    {"role": "user", "content": "What is <b>1 + 1</b>?"},
]
WANTED = "<s><|system|>Be brief.</s><|user|>What is <b>1 + 1</b>?</s><|assistant|>"


def test_templates_write_what_the_model_was_trained_on():
    made = chat_template(ENTRIES, None)
    assert made.render(MESSAGES) == WANTED
    named = [{"name": "tools", "template": "x"}, {"name": "default", "template": TEMPLATE}]
    assert chat_template(ENTRIES | {"chat_template": named}, None).render(MESSAGES) == WANTED
    assert chat_template({}, "{{ messages[0].role | tojson }}{{ {'a': '<é>'} | tojson }}").render(
        MESSAGES
    ) == ('"system"{"a": "<é>"}')
    assert chat_template({}, None) is None
    assert len(ChatTemplate("{{ strftime_now('%Y') }}", {}).render(MESSAGES)) == 4


def test_they_are_those_of_the_package_that_defines_them():
    package = pytest.importorskip("transformers.utils.chat_template_utils")
    text = package.render_jinja_template(
        [MESSAGES], chat_template=TEMPLATE, add_generation_prompt=True, bos_token="<s>", eos_token="</s>"
    )[0]
    assert text == [WANTED]


@pytest.mark.parametrize(
    ("template", "kind", "problem"),
    [
        ("{% for %}", ModelError, "the chat template cannot be read"),
        ("{{ raise_exception('no tools') }}", InputError, "refuses these messages: no tools"),
        ("{{ messages[0].content + 3 }}", InputError, "cannot say these messages"),
        ("{{ messages.__class__.__mro__[1].__subclasses__() }}", InputError, "cannot say these messages"),
        ("{{ messages.append(1) }}", InputError, "cannot say these messages"),
        ("{{ 1 // 0 }}", InputError, "cannot say these messages"),
    ],
)
def test_malformed_templates_are_refused(template, kind, problem):
    with pytest.raises(kind, match=problem):
        ChatTemplate(template, {}).render(MESSAGES)


@pytest.mark.parametrize("messages", ["hello", [], None, 3])
def test_conversations_are_lists(messages):
    with pytest.raises(InputError, match="a conversation is a list of messages"):
        ChatTemplate("", {}).render(messages)


@pytest.mark.parametrize("message", ["hello", {"content": "a"}, {"role": 3}])
def test_messages_have_roles(message):
    with pytest.raises(InputError, match="a message has a role and a content"):
        ChatTemplate("", {}).render([message])
