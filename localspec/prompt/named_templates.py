"""Chat templates that `--template` knows by name, and the texts that end an answer under each.

Names and prompts are those of llama.cpp (src/llama-chat.cpp). A stop text matters where the vocabulary has no token
for the end of a turn: a base model would go on with the next question itself.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NamedTemplate:
    """The Jinja `source`, and the texts at which an answer ends."""

    source: str
    stops: tuple[str, ...] = ()


def _turns(turn: str, generation: str) -> str:
    loop = f"{{%- for message in messages %}}\n{{{{- {turn} }}}}\n{{%- endfor %}}\n"
    return loop + f"{{%- if add_generation_prompt %}}{{{{ {generation!r} }}}}{{% endif %}}"


def _questions(system: str, user: str, answer: str) -> str:
    """Return a template without a generation prompt: an answer follows the question's own end."""
    return (
        "{%- set ns = namespace(system='') %}\n{%- for message in messages %}\n"
        f"{{%- if message['role'] == 'system' %}}{{% set ns.system = {system} %}}\n"
        f"{{%- elif message['role'] == 'user' %}}{{{{- {user} }}}}{{% set ns.system = '' %}}\n"
        f"{{%- else %}}{{{{- {answer} }}}}\n{{%- endif %}}\n{{%- endfor %}}"
    )


_ROLE, _TEXT, _TRIMMED = "message['role']", "message['content']", "message['content'] | trim"

CHATML = _turns(f"'<|im_start|>' + {_ROLE} + '\\n' + {_TEXT} + '<|im_end|>\\n'", "<|im_start|>assistant\n")

DIALOGUE = """\
{%- set names = {'system': '', 'user': 'User: ', 'assistant': 'Assistant: '} %}
{%- for message in messages %}
{{- names[message['role']] + message['content'] + '\\n\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"""

_GEMMA = """\
{%- set ns = namespace(system='') %}
{%- for message in messages %}
{%- if message['role'] == 'system' %}{% set ns.system = (message['content'] | trim) + '\\n\\n' %}
{%- else %}
{{- '<start_of_turn>' + ('model' if message['role'] == 'assistant' else 'user') + '\\n' }}
{%- if message['role'] == 'user' %}{{- ns.system }}{% set ns.system = '' %}{% endif %}
{{- (message['content'] | trim) + '<end_of_turn>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""

_MISTRAL_V7 = """\
{%- for message in messages %}
{%- if message['role'] == 'system' %}{{- '[SYSTEM_PROMPT]' + message['content'] + '[/SYSTEM_PROMPT]' }}
{%- elif message['role'] == 'user' %}{{- '[INST]' + message['content'] + '[/INST]' }}
{%- else %}{{- message['content'] + '</s>' }}
{%- endif %}
{%- endfor %}"""

_VICUNA = """\
{%- set names = {'system': '', 'user': 'USER: ', 'assistant': 'ASSISTANT: '} %}
{%- set ends = {'system': '\\n\\n', 'user': '\\n', 'assistant': '</s>\\n'} %}
{%- for message in messages %}
{{- names[message['role']] + message['content'] + ends[message['role']] }}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"""

_DEEPSEEK = """\
{%- for message in messages %}
{%- if message['role'] == 'system' %}{{- message['content'] }}
{%- elif message['role'] == 'user' %}{{- '### Instruction:\\n' + message['content'] + '\\n' }}
{%- else %}{{- '### Response:\\n' + message['content'] + '\\n<|EOT|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}"""

_COMMAND_R = _turns(
    "'<|START_OF_TURN_TOKEN|>' + {'system': '<|SYSTEM_TOKEN|>', 'user': '<|USER_TOKEN|>', 'assistant': "
    f"'<|CHATBOT_TOKEN|>'}}[{_ROLE}] + ({_TRIMMED}) + '<|END_OF_TURN_TOKEN|>'",
    "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
)


def _next_turn(*names: str) -> tuple[str, ...]:
    """Return the texts that begin another turn; of two that end together the longer one cuts the blank lines too."""
    return tuple(f"{gap}{name}" for name in names for gap in ("\n\n", "\n"))


NAMED: dict[str, NamedTemplate] = {
    "chatml": NamedTemplate(CHATML, ("<|im_end|>",)),
    "command-r": NamedTemplate(_COMMAND_R, ("<|END_OF_TURN_TOKEN|>",)),
    "deepseek": NamedTemplate(_DEEPSEEK, ("<|EOT|>", *_next_turn("### Instruction:"))),
    "gemma": NamedTemplate(_GEMMA, ("<end_of_turn>",)),
    "llama2": NamedTemplate(
        _questions(
            f"'<<SYS>>\\n' + {_TEXT} + '\\n<</SYS>>\\n\\n'",
            f"'[INST] ' + ns.system + {_TEXT} + ' [/INST]'",
            f"{_TEXT} + '</s>'",
        ),
        ("</s>",),
    ),
    "llama3": NamedTemplate(
        _turns(
            f"'<|start_header_id|>' + {_ROLE} + '<|end_header_id|>\\n\\n' + ({_TRIMMED}) + '<|eot_id|>'",
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        ("<|eot_id|>",),
    ),
    "mistral": NamedTemplate(
        _questions(
            f"{_TEXT} + '\\n\\n'", f"'[INST] ' + ns.system + {_TEXT} + '[/INST]'", f"' ' + ({_TRIMMED}) + '</s>'"
        ),
        ("</s>",),
    ),
    "mistral-v7": NamedTemplate(_MISTRAL_V7, ("</s>",)),
    "none": NamedTemplate(DIALOGUE, _next_turn("User:", "Assistant:")),
    "phi3": NamedTemplate(
        _turns(f"'<|' + {_ROLE} + '|>\\n' + {_TEXT} + '<|end|>\\n'", "<|assistant|>\n"), ("<|end|>",)
    ),
    "phi4": NamedTemplate(
        _turns(f"'<|im_start|>' + {_ROLE} + '<|im_sep|>' + {_TEXT} + '<|im_end|>'", "<|im_start|>assistant<|im_sep|>"),
        ("<|im_end|>",),
    ),
    "vicuna": NamedTemplate(_VICUNA, ("</s>", *_next_turn("USER:"))),
    "zephyr": NamedTemplate(
        _turns(f"'<|' + {_ROLE} + '|>\\n' + {_TEXT} + eos_token + '\\n'", "<|assistant|>\n"), _next_turn("<|user|>")
    ),
}


def stops_of(source: str | None) -> tuple[str, ...]:
    return next((named.stops for named in NAMED.values() if named.source == source), ())
