"""The symbols of ListOps expressions, and the allowed lengths."""

from linrnn.tasks.characters import SPECIAL

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
VOCABULARY = (*SPECIAL, *OPERATORS, "]", *map(str, range(10)))
MIN, MAX, MED, SM, CLOSE, ZERO = range(len(SPECIAL), len(SPECIAL) + 6)  # ZERO: the id of the digit 0
SHORTEST, LONGEST = 501, 1999  # tokens of an example, <eos> not counted
LENGTH = 2048
