"""For schemathesis: a whole number is spelled as one. To JSON Schema 2.0 is an integer; to the wire it is none."""
import schemathesis


def whole(value):
    if isinstance(value, dict):
        return {key: whole(part) for key, part in value.items()}
    if isinstance(value, list):
        return [whole(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@schemathesis.hook
def map_body(_context, body):
    return whole(body)
