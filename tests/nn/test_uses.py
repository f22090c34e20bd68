"""What people do with `nn.GRU`, as one script, which runs with one changed line."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import linrnn

STATEFUL_PARTS = 3


@pytest.fixture(params=[nn.GRU, linrnn.nn.LRU], ids=["GRU", "LRU"])
def rnn_class(request: pytest.FixtureRequest) -> Any:
    return request.param  # the changed line


def test_stacked(rnn_class: Any) -> None:
    rnn = rnn_class(8, 16, num_layers=3, dropout=0.1, batch_first=True)
    rnn.flatten_parameters()
    head = nn.Linear(16, 2)
    _, h_n = rnn(torch.randn(4, 20, 8))
    loss = F.cross_entropy(head(h_n[-1]), torch.tensor([0, 1, 1, 0]))
    loss.backward()
    total = nn.utils.clip_grad_norm_(rnn.parameters(), 1.0)
    assert total.isfinite()
    torch.optim.Adam(rnn.parameters(), lr=1e-3).step()


def test_packed(rnn_class: Any) -> None:
    rnn = rnn_class(8, 16, batch_first=True)
    x, lengths = torch.randn(4, 20, 8), torch.tensor([7, 20, 1, 13])
    output, h_n = rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    padded, found = pad_packed_sequence(output, batch_first=True, total_length=20)
    assert padded.shape == (4, 20, 16)
    assert h_n.shape == (1, 4, 16)
    assert found.equal(lengths)
    assert not padded[2, 1:].any()
    one, last = rnn(x[0, :7])
    torch.testing.assert_close(padded[0, :7], one, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(h_n[:, 0], last, atol=1e-5, rtol=1e-4)


def test_bidirectional(rnn_class: Any) -> None:
    rnn = rnn_class(8, 16, num_layers=2, bidirectional=True)
    output, h_n = rnn(torch.randn(20, 4, 8), torch.zeros(4, 4, 16))
    assert output.view(20, 4, 2, 16).shape == (20, 4, 2, 16)
    both = h_n.view(2, 2, 4, 16)[-1]
    assert nn.Linear(32, 3)(torch.cat([both[0], both[1]], dim=-1)).shape == (4, 3)
    assert nn.Linear(32, 3)(torch.cat((h_n[-2, :, :], h_n[-1, :, :]), dim=1)).shape == (4, 3)


def test_stateful(rnn_class: Any) -> None:
    """Truncated backpropagation: the state is handed on, its gradient is not."""
    torch.manual_seed(0)
    rnn, head = rnn_class(8, 16, num_layers=2), nn.Linear(16, 5)
    optimizer = torch.optim.AdamW([*rnn.parameters(), *head.parameters()], lr=1e-3)
    hidden = torch.zeros(2, 4, 16)
    stream = torch.randn(STATEFUL_PARTS * 10, 4, 8)
    with torch.no_grad():
        whole, _ = copy.deepcopy(rnn)(stream[:20])
        first, state = rnn(stream[:10])
        second, _ = rnn(stream[10:20], state)
        torch.testing.assert_close(torch.cat([first, second]), whole, atol=1e-5, rtol=1e-4)
    for part in stream.split(10):
        hidden = hidden.detach()
        output, hidden = rnn(part, hidden)
        loss = F.cross_entropy(head(output).view(-1, 5), torch.randint(5, (40,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    # beam search: states of other sequences
    order = torch.tensor([3, 3, 0, 1])
    output, hidden = rnn(torch.randn(1, 4, 8), hidden.index_select(1, order).contiguous())
    assert output.shape == (1, 4, 16)


def test_mixed_precision(rnn_class: Any) -> None:
    rnn = rnn_class(8, 16, num_layers=2, batch_first=True)
    head = nn.Linear(16, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = rnn(torch.randn(4, 20, 8))
        loss = head(output[:, -1]).float().square().mean()
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in rnn.parameters())
    half = rnn_class(8, 16, dtype=torch.bfloat16)
    assert half(torch.randn(5, 4, 8).bfloat16(), torch.zeros(1, 4, 16).bfloat16())[0].dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore:The tensor attributes self._flat_weights")  # of nn.GRU
def test_exported(rnn_class: Any) -> None:
    rnn = rnn_class(8, 16, num_layers=2, batch_first=True).eval()
    x = torch.randn(4, 20, 8)
    program: Callable[..., Any] = torch.export.export(rnn, (x,)).module()
    torch.testing.assert_close(program(x)[0], rnn(x)[0], atol=1e-5, rtol=1e-4)


def test_unbatched(rnn_class: Any) -> None:
    output, h_n = rnn_class(8, 16, 2)(torch.randn(20, 8))
    assert (output.shape, h_n.shape) == ((20, 16), (2, 16))


def test_weights(rnn_class: Any) -> None:
    torch.manual_seed(3)
    rnn = rnn_class(8, 16, bias=False)
    torch.manual_seed(3)
    same = rnn_class(8, 16, bias=False)
    x = torch.randn(5, 4, 8)
    torch.testing.assert_close(rnn(x)[0], same(x)[0])
    other = rnn_class(8, 16, bias=False)
    other.load_state_dict(rnn.state_dict())
    torch.testing.assert_close(rnn(x)[0], other(x)[0])
