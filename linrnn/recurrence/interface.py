"""What every backend of the scan offers, and the named results and options that they share."""

from typing import NamedTuple, Protocol

from torch import Tensor


class Options(NamedTuple):
    """The direction of a scan, and where its sequences begin."""

    resets: Tensor | None = None  # bool (batch, length), true where a new sequence starts
    reverse: bool = False  # from the last step to the first
    offsets: Tensor | None = None  # integers (sequences + 1,), the bounds of a packed batch; then there are no resets

    def reversed(self) -> "Options":
        return self._replace(reverse=not self.reverse)


class Gradients(NamedTuple):
    """The gradients of a scan; dλ and the sums of ∂L/∂u come from one reduction and stay in one tensor."""

    u: Tensor
    sums: Tensor  # (1, 2, N); with `sum_u` (1 + directions, 2, N)
    initial: Tensor

    @property
    def lam(self) -> Tensor:
        return self.sums[0]

    @property
    def sum_u(self) -> Tensor:
        """∂L/∂u, before it was rounded, summed over sequences and steps: (directions, 2, N)."""
        return self.sums[1:]


class Kernels(Protocol):
    """A backend: a module with these functions, on real planes as in `op`."""

    def scan(
        self, u: Tensor, lam: Tensor, initial: Tensor, options: Options, bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The states and the final state of the scan of u, or of u + bias with a bias (2, N)."""

    def adds_bias(self, u: Tensor, options: Options) -> bool:
        """Whether `scan` adds a bias in less time than the matrix product that gives u."""

    def scan_backward(
        self,
        grad_states: Tensor,
        grad_final: Tensor,
        states: Tensor,
        lam: Tensor,
        initial: Tensor,
        options: Options,
        sum_u: bool = False,
    ) -> Gradients:
        """The gradients of a scan with these options."""

    def exclusive_scan(self, u: Tensor, lam: Tensor, initial: Tensor, options: Options) -> tuple[Tensor, Tensor]:
        """The state that each step starts from, and the final state, in one direction or in both."""

    def exclusive_scan_backward(
        self,
        grad_states: Tensor,
        grad_final: Tensor,
        states: Tensor,
        lam: Tensor,
        options: Options,
        sum_u: bool = False,
    ) -> Gradients:
        """The gradients of an exclusive scan with these options."""
