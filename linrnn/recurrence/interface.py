"""The functions of every backend of the scan, with their options and results."""

from typing import NamedTuple, Protocol

from torch import Tensor


class Options(NamedTuple):
    """The kind and the direction of a scan, and where its sequences begin."""

    resets: Tensor | None = None  # bool (batch, length), true where a new sequence starts
    reverse: bool = False  # from the last step to the first
    offsets: Tensor | None = None  # integers (sequences + 1,), the bounds of a packed batch; then there are no resets
    exclusive: bool = (
        False  # the state before each step, in one direction or both: u is (batch, length, directions, 2, N)
    )

    def reversed(self) -> "Options":
        return self._replace(reverse=not self.reverse)


class Solved(NamedTuple):
    """A scan and its states: what its gradients need."""

    states: Tensor
    lam: Tensor
    initial: Tensor | None  # None for an exclusive scan, whose states contain it
    options: Options


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
        """∂L/∂u, summed over sequences and steps before rounding: (directions, 2, N)."""
        return self.sums[1:]


class Kernels(Protocol):
    """A backend: a module with these functions, on real planes as in `op`."""

    def scan(
        self, u: Tensor, lam: Tensor, initial: Tensor, options: Options, bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The states and the final state of the scan of u, or of u + bias with a bias (2, N)."""

    def adds_bias(self, u: Tensor, options: Options) -> bool:
        """Whether `scan` adds a bias in less time than the matrix product that computes u."""

    def scan_backward(self, grad_states: Tensor, grad_final: Tensor, solved: Solved, sum_u: bool = False) -> Gradients:
        """The gradients of a scan."""


class VaryingKernels(Protocol):
    """A backend of the scan with a λ for each step, on numbers (..., P, N) as in `varying`."""

    def scan(self, u: Tensor, lam: Tensor, initial: Tensor, options: Options) -> tuple[Tensor, Tensor]:
        """The states and the final state."""

    def scan_backward(
        self,
        grad_states: Tensor,
        grad_final: Tensor,
        states: Tensor,
        lam: Tensor,
        initial: Tensor,
        options: Options,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of u, lam and initial."""
