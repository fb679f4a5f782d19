"""Forty schemas in the style of the arguments of tools, for schemas.py and forms.py."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "maxLength": 40}
WORD: Schema = {"type": "string", "pattern": "^[a-z_]{1,16}$"}
FLAG: Schema = {"type": "boolean"}
DAY: Schema = {"type": "string", "format": "date"}


def one_of(*values: Any) -> Schema:
    """Return a schema of some values."""
    return {"enum": list(values)}


def many(items: Schema, most: int, least: int = 0) -> Schema:
    """Return a schema of a list."""
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


def number(least: float, most: float, kind: str = "integer") -> Schema:
    """Return a schema of a number."""
    return {"type": kind, "minimum": least, "maximum": most}


def call(**properties: Schema) -> Schema:
    """Return a schema of an object that has these properties; those whose name ends with `_` may be left out."""
    return {
        "type": "object",
        "properties": {name.rstrip("_"): schema for name, schema in properties.items()},
        "required": [name for name in properties if not name.endswith("_")],
        "additionalProperties": False,
    }


PLACE = call(latitude=number(-90, 90, "number"), longitude=number(-180, 180, "number"))
MONEY = call(amount=number(0, 100000, "number"), currency=one_of("EUR", "USD", "JPY", "GBP"))
CELL: Schema = {"type": "string", "pattern": "^[A-Z]{1,2}[1-9][0-9]{0,3}$"}
NODE: Schema = {
    "$ref": "#/$defs/node",
    "$defs": {"node": call(name=WORD, children=many({"$ref": "#/$defs/node"}, 2))},
}

TOOL_ARGUMENTS: dict[str, Schema] = {
    "get the weather in Paris": call(city=TEXT, unit=one_of("celsius", "fahrenheit"), days_=number(1, 7)),
    "search the web for llamas": call(query=TEXT, max_results=number(1, 20), safe_search_=FLAG),
    "send mail to Ada about lunch": call(to=many(TEXT, 3, 1), subject=TEXT, body=TEXT, is_urgent_=FLAG),
    "book a table for four on Friday": call(restaurant=TEXT, guests=number(1, 12), day=DAY, is_outside=FLAG),
    "set a timer of ten minutes": call(seconds=number(1, 86400), label_=TEXT),
    "play some jazz": call(action=one_of("play", "pause", "stop"), genre_=TEXT, volume_=number(0, 100)),
    "turn on the light in the kitchen": call(room=WORD, device=one_of("light", "heating", "blind"), is_on=FLAG),
    "convert 30 euros to yen": call(money=MONEY, target=one_of("EUR", "USD", "JPY", "GBP")),
    "find the way from Rome to Milan": call(origin=TEXT, goal=TEXT, mode=one_of("car", "train", "walk", "bike")),
    "where is the Eiffel tower": call(name=TEXT, at=PLACE),
    "read lines 10 to 20 of main.py": call(path=TEXT, first_line=number(1, 9999), last_line=number(1, 9999)),
    "replace foo by bar in main.py": call(path=TEXT, old=TEXT, new=TEXT, is_everywhere=FLAG),
    "list the files below src": call(folder=TEXT, pattern_=TEXT, depth_={"anyOf": [number(1, 9), {"type": "null"}]}),
    "run the tests": call(command=many(TEXT, 5, 1), timeout_s=number(1, 600), environment_=many(TEXT, 2)),
    "make a branch": call(name=WORD, base=one_of("main", "develop"), is_pushed=FLAG),
    "open an issue about a crash": call(title=TEXT, body=TEXT, labels=many(one_of("bug", "idea", "docs"), 2)),
    "select all users over 30": call(table=WORD, columns=many(WORD, 4, 1), where=call(column=WORD,
        operator=one_of("=", "<", ">", "<=", ">="), value={"type": ["integer", "string"], "maxLength": 12,
        "maximum": 999, "minimum": 0}), limit_=number(1, 1000)),
    "add a row with a name and an age": call(table=WORD, values=call(name=TEXT, age=number(0, 130))),
    "write 5 in cell B2": call(sheet=TEXT, cell=CELL, value={"anyOf": [number(0, 99999, "number"), TEXT]}),
    "sum the cells A1 to A9": call(function=one_of("SUM", "AVERAGE", "MAX"), first=CELL, last=CELL),
    "draw a red circle": call(shape=one_of("circle", "square"), color={"type": "string", "pattern": "^#[0-9a-f]{6}$"},
        radius=number(1, 500), is_filled_=FLAG),
    "resize the picture to 640 by 480": call(file=TEXT, width=number(1, 8192), height=number(1, 8192),
        format=one_of("png", "jpeg", "webp")),
    "translate good morning into French": call(text=TEXT, source={"type": "string", "pattern": "^[a-z]{2}$"},
        target={"type": "string", "pattern": "^[a-z]{2}$"}),
    "what is in this sentence: Ada met Bob in Rome": call(people=many(TEXT, 3), places=many(TEXT, 3), has_date=FLAG),
    "how does the writer feel about the film": call(sentiment=one_of("good", "bad", "mixed"), score=number(0, 10)),
    "enter Ada Lovelace, born 1815": call(given_name=TEXT, family_name=TEXT, born=number(1000, 2100),
        email={"type": ["string", "null"], "maxLength": 30}),
    "pay 20 dollars to Bob": call(receiver=TEXT, money=MONEY, on=DAY, note_=TEXT),
    "order two pizzas": call(items=many(call(name=TEXT, count=number(1, 9)), 2, 1),
        address=call(street=TEXT, city=TEXT)),
    "where is parcel 1Z999": call(carrier=one_of("dhl", "ups", "fedex"), number={"type": "string",
        "pattern": "^[0-9A-Z]{6,12}$"}),
    "a meeting on Monday at nine": call(title=TEXT, start={"type": "string", "format": "date-time"},
        minutes={"type": "integer", "minimum": 15, "maximum": 240, "multipleOf": 15}, guests_=many(TEXT, 2)),
    "repeat it every week": call(every=one_of("day", "week", "month"), on=many(one_of(*range(1, 8)), 3, 1), until_=DAY),
    "allow port 443 from 10.0.0.1": call(action=one_of("allow", "deny"), ip={"type": "string", "format": "ipv4"},
        port=number(1, 65535), protocol=one_of("tcp", "udp")),
    "start two servers": call(image=TEXT, count=number(1, 9), size={"type": "string", "pattern": "^[sml][0-9]$"},
        tags_={"type": "object", "additionalProperties": {"type": "string", "maxLength": 8}, "maxProperties": 2}),
    "restart job 5f0c": call(id={"type": "string", "format": "uuid"}, is_forced=FLAG),
    "move the robot": call(steps=many({"anyOf": [call(turn=number(-180, 180)), call(forward=number(0, 9, "number"))]},
        3, 1)),
    "a small tree of folders": NODE,
    "a triangle": call(points={"type": "array", "prefixItems": [PLACE, PLACE, PLACE], "items": False, "minItems": 3}),
    "a query: cheap and red, or new": call(any=many(call(all=many(call(field=WORD, is_true=FLAG), 2, 1)), 2, 1)),
    "answer by text or by a call": {"anyOf": [call(say=TEXT), call(call=WORD, arguments=many(TEXT, 2))]},
    "nothing at all": call(),
}  # fmt: skip
