from collections import Counter

import numpy as np
import pytest

from linrnn.tasks import characters

TEXTS = ["abba", "ab€", "b😀", "", "ä" * 3 + "€" * 2]


@pytest.mark.parametrize("least", [1, 2, 3, 4, 5])
def test_the_vocabulary_is_what_a_plain_count_gives(least: int) -> None:
    counts = Counter("".join(TEXTS))
    expected = sorted(character for character, times in counts.items() if times >= least)
    assert characters.build(TEXTS, least) == ("<pad>", "<unk>", "<eos>", *expected)


def test_more_texts_than_are_counted_at_a_time() -> None:
    texts = ["x"] * (2 * characters.TOGETHER + 1)
    assert characters.build(iter(texts), len(texts))[3:] == ("x",)
    assert characters.build(iter(texts), len(texts) + 1)[3:] == ()


def test_texts_are_encoded_and_come_back() -> None:
    vocabulary = characters.build(TEXTS, 2)
    inputs, lengths = np.full((len(TEXTS), 9), 77, dtype=np.uint8), np.zeros(len(TEXTS), dtype=np.int16)
    characters.encode(iter(TEXTS), vocabulary, inputs, lengths)
    for text, row, length in zip(TEXTS, inputs.tolist(), lengths.tolist(), strict=True):
        seen = [character if character in vocabulary else "<unk>" for character in text]
        symbols = [vocabulary[number] for number in row]
        assert symbols == [*seen, "<eos>"] + ["<pad>"] * (8 - len(text))
        assert length == len(text) + 1
    assert vocabulary[inputs[2, 1]] == "<unk>"  # 😀, seen once


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9])
def test_what_is_too_long_is_cut_and_its_end_kept(length: int) -> None:
    inputs, lengths = np.zeros((1, length), dtype=np.uint8), np.zeros(1, dtype=np.int16)
    characters.encode(["abcdefg"], characters.build(["abcdefg"], 1), inputs, lengths)
    expected = [*range(3, 10)][: length - 1]
    expected.append(characters.END)
    assert inputs[0].tolist() == expected + [characters.PAD] * (length - len(expected))
    assert lengths.tolist() == [len(expected)]


def test_a_vocabulary_that_does_not_fit_is_refused() -> None:
    text = "".join(map(chr, range(1000, 1254)))
    inputs, lengths = np.zeros((1, 300), dtype=np.uint8), np.zeros(1, dtype=np.int16)
    characters.encode([text[1:]], characters.build([text[1:]], 1), inputs, lengths)
    assert inputs.max() == 255
    with pytest.raises(ValueError, match="vocabulary: expected symbols that fit uint8, got 257 of them"):
        characters.encode([text], characters.build([text], 1), inputs, lengths)


def test_there_are_as_many_texts_as_rows() -> None:
    with pytest.raises(ValueError, match="zip"):
        characters.encode(["a"], characters.build("a", 1), np.zeros((2, 4), dtype=np.uint8), np.zeros(2, dtype=int))
