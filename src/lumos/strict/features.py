"""Features on the device: their form, rows of norm 1, and their private scaling.

**Short rows.** `row_sums` and `row_maxima` equal NumPy's results bit by bit. NumPy reduces an array
[rows, k] row by row. For a few columns, adding column by column is five times as fast; below eight
numbers, NumPy adds them in the same order.

**Rows.** Features are used as rows of norm 1. Each device scales its own row, so that no device has
a larger weight than another.

**Scaling.** Centre and size of every feature are learnt by noisy sums. A column in the thousands
beside columns around 1 takes all of a row of norm 1, and an offset makes all rows alike. So before
anything else is learnt, features are brought to one scale.

An unbounded column has no sensitivity. So magnitudes are counted first, in a histogram over powers
of two, to which every device adds one count per feature, 1/√d each. The octaves that hold most
devices bound the feature, and a mean within these bounds is its centre. Both are repeated around
the new centre: the noise of a mean is a share of the bounds, which become narrower each time.

    histogram of |x|  →  mean  →  histogram of |x - c|  →  mean  →  histogram of |x - c|

Sparse features keep their zeros: they are divided by their size, and not shifted. So do features
that are mostly zero. If noise hides most histograms, nothing is changed, and the run warns.

Guarantee: every sum is one more Gaussian mechanism of the account (`Schedule.first_stages`);
centres and sizes are functions of noisy sums alone, so they are public.

**Form.** If a setting is `auto`, a fact about all features of the graph decides: whether any is
negative, whether all lie between -1 and 1, whether they are stored sparse. Such facts belong to a
public schema, which real devices agree on beforehand; the run reports that they are public.

**Outer products.** A gradient of a linear model is row times slope. `OuterVectors` keeps the two
factors, which take little memory however wide the product is.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, diags_array, issparse

from lumos.errors import InputError, UsageError
from lumos.graph.facts import GraphFacts
from lumos.ldp.bounds import Features, unit_rows
from lumos.secagg.noise import clip_factors
from lumos.typing import Arrays, Doubles, Flags, Ints

if TYPE_CHECKING:
    from lumos.strict.settings import StrictSettings

ROWS = 1 << 14
"""Number of rows to compute with at a time, so that they stay in the cache."""
_ONE_BY_ONE = 7  # NumPy adds more numbers than this in pairs


def row_sums(values: Doubles) -> Doubles:
    """Return [rows] `values.sum(axis=1)`."""
    columns = values.shape[1]
    if not 0 < columns <= _ONE_BY_ONE:
        sums: Doubles = values.sum(axis=1)
        return sums
    sums = values[:, 0].copy()
    for column in range(1, columns):
        sums += values[:, column]
    return sums


def row_maxima(values: Doubles) -> Doubles:
    """Return [rows] `values.max(axis=1)`."""
    maxima = values[:, 0].copy()
    for column in range(1, values.shape[1]):
        np.maximum(maxima, values[:, column], out=maxima)
    return maxima


class FeatureRows:
    """The hosted devices' features.

    Args:
        features: [hosted, d].
        train: [hosted] whether the device's features enter sums.
        nonnegative: negative numbers become 0.
    """

    def __init__(
        self, features: Features, train: npt.NDArray[np.bool_], *, nonnegative: bool = False
    ) -> None:
        self.train = np.flatnonzero(train)
        rows: Any = features
        if nonnegative:
            sparse: bool = issparse(rows)
            rows = rows.maximum(0) if sparse else np.maximum(rows, 0)
        self.all = unit_rows(rows)
        """[hosted, d]"""
        self.training: Any = self.all[self.train]
        """[training devices, d]"""

    @property
    def width(self) -> int:
        """Number of features, d."""
        return int(self.all.shape[1])


def within(rows: Any, limit: float) -> Any:
    """Scale rows down to norm `limit`, by norms in double precision.

    `unit_rows` works in single precision, so its rows may be longer than 1 by some 1e-7.
    """
    sparse: bool = issparse(rows)
    exact: Any = rows.astype(np.float64)
    squares = exact.power(2) if sparse else exact**2
    factors = clip_factors(np.sqrt(np.asarray(squares.sum(axis=1)).ravel()), limit)
    if (factors == 1).all():
        return rows
    return diags_array(factors) @ rows if sparse else rows * factors[:, None]


def dense(rows: Any) -> Doubles:
    """Return rows as a dense array."""
    as_array: Any = getattr(rows, "toarray", None)
    return np.asarray(rows if as_array is None else as_array(), np.float64)


def row_products(rows: Any, table: Doubles) -> Doubles:
    """Return [rows, k] rows times a table, every row by itself.

    A product of whole matrices may round a row differently when there are more of them; results
    must not depend on how devices are spread over shards.
    """
    sparse: bool = issparse(rows)
    if sparse:
        return np.asarray(rows @ table)
    product: Doubles = np.matmul(np.asarray(rows, np.float64)[:, None, :], table)[:, 0]
    return product


Scaling = Literal["auto", "none", "size", "standard"]

MIN_POWER, POWERS = -24, 64
"""Octaves of the histogram, from 2^-24 to 2^40; smaller numbers count as zero."""
BUCKETS = 1 + POWERS
WINDOW, WINDOW_SHARE = 3, 0.76
"""Octaves that bound a feature, from σ/4 to 2σ, and the share of a normal distribution in them."""
CLEAR = 3.5
"""Standard deviations of noise above which a window of a histogram is significant."""
MAX_SIZES = 3.0
"""Largest distance of a feature from its centre, in sizes; larger ones are clipped."""
SIZES, CENTRES = "sizes", "centres"
"""Stages: histograms, and means."""
STAGES: dict[str, tuple[str, ...]] = {
    "none": (),
    "size": (SIZES,),
    "standard": (SIZES, CENTRES, SIZES, CENTRES, SIZES),
}
"""The sums of each kind of scaling, in order."""
SCALING_ARRAYS = ("feature_centre", "feature_size", "feature_scaling", "feature_scaled")
"""Names of the arrays of a scaling."""


@dataclass(frozen=True, eq=False)
class FeatureScaling:
    """The scaling that every device applies to its own features."""

    centre: Doubles
    """[d]"""
    size: Doubles
    """[d] above 0."""
    kind: str = "standard"
    """A key of `STAGES`."""
    learnt: bool = True
    """False if noise hid most histograms: features stay as they are."""

    @property
    def stages(self) -> tuple[str, ...]:
        """The sums that it was learnt by, in order."""
        return STAGES[self.kind]

    def apply(self, features: Features) -> Features:
        """Return [hosted, d] scaled features, clipped at `MAX_SIZES`; sparse ones stay sparse."""
        if not self.learnt:
            return features
        sparse: bool = issparse(features)
        if sparse:
            rows: Any = csr_array(features)
            cut = np.clip(rows.data / self.size[rows.indices], -MAX_SIZES, MAX_SIZES)
            return csr_array((cut.astype(np.float32), rows.indices, rows.indptr), shape=rows.shape)
        moved = (np.asarray(features, np.float64) - self.centre) / self.size
        return np.clip(moved, -MAX_SIZES, MAX_SIZES).astype(np.float32)

    def arrays(self) -> Arrays:
        """Return the arrays of a file."""
        kept = (self.centre, self.size, self.kind, self.learnt)
        return {name: np.asarray(part) for name, part in zip(SCALING_ARRAYS, kept, strict=True)}

    @staticmethod
    def of(arrays: Arrays, features: int) -> "FeatureScaling":
        """Restore a scaling from its arrays.

        Raises:
            InputError: it is missing, or belongs to other features.
        """
        if any(name not in arrays for name in SCALING_ARRAYS):
            raise InputError("model.npz: centre and size of the features are missing; train again")
        centre, size, kind, learnt = (arrays[name] for name in SCALING_ARRAYS)
        numbers = all(
            array.dtype == np.float64 and array.shape == (features,) and np.isfinite(array).all()
            for array in (centre, size)
        )
        flag = learnt.dtype == np.bool_ and learnt.shape == ()
        if not numbers or not (size > 0).all() or not flag or str(kind) not in STAGES:
            raise InputError("model.npz: centre and size do not match these features; train again")
        return FeatureScaling(centre, size, str(kind), bool(learnt))


class ScalingSums:
    """The hosted devices' part in learning a scaling.

    Args:
        features: [hosted, d] as the devices have them.
        adding: positions of the devices that add to the sums.
        devices: number of all devices that add, of all shards.
        fraction_bits: of the fixed point in which numbers are added.
        kind: a key of `STAGES`.

    Raises:
        UsageError: the steps of the fixed point are larger than one count.
    """

    def __init__(
        self,
        features: Features,
        adding: Ints,
        devices: int,
        fraction_bits: int,
        kind: str = "standard",
    ) -> None:
        self._kind = kind
        self._rows: Any = features[adding]
        self.adding = adding
        self._hosted, self._features = (int(size) for size in features.shape)
        self._devices = max(1, devices)
        self._steps = 2.0**fraction_bits
        # The largest k with d · k² ≤ 4^bits, exactly: no device's d numbers have a norm above 1.
        whole = math.isqrt(4**fraction_bits // max(1, self._features))
        if not whole:
            raise UsageError(
                f"`fraction_bits={fraction_bits}` is too coarse to scale {self._features:,} "
                "features; raise it, or use `scaling='none'`"
            )
        self._one = whole / self._steps
        self._centre = np.zeros(self._features)
        self._bound = np.ones(self._features)
        self._clear = np.zeros(self._features, np.bool_)
        self._zeros = np.zeros(self._features, np.bool_)
        self._first, self._learnt = True, True

    def vectors(self, stage: str, *, each: bool) -> Doubles:
        """Return the vectors in a sum of a stage: [hosted, width] each, or their sum."""
        if not each:
            return self._count() if stage == SIZES else self._means().sum(axis=0)
        whole = np.zeros((self._hosted, self._features * (BUCKETS if stage == SIZES else 1)))
        whole[self.adding] = self._counts() if stage == SIZES else self._means()
        return whole

    def learn(self, stage: str, total: Doubles, noise: float) -> None:
        """Learn from a sum; `noise` is the standard deviation of each of its numbers."""
        counts, error = total / self._one, noise / self._one
        if stage == CENTRES:
            mean = counts / self._devices
            moving = self._clear & ~self._zeros
            self._centre = self._centre + np.where(moving, mean * self._bound, 0.0)
            return
        histogram = counts.reshape(self._features, BUCKETS)
        bound, self._clear = _bounds(histogram, error)
        if self._first:  # the only histogram around 0
            self._first = False
            self._zeros = histogram[:, 0] > self._devices / 2
            self._learnt = bool(2 * self._clear.sum() >= self._features)
        common, _ = _bounds(histogram.sum(axis=0, keepdims=True), error * self._features**0.5)
        self._bound = np.where(self._clear, bound, common)

    def scaling(self) -> FeatureScaling:
        """Return the scaling; the size of a feature is half of its bound (2σ of a normal one)."""
        if not self._learnt:
            zeros, ones = np.zeros(self._features), np.ones(self._features)
            return FeatureScaling(zeros, ones, self._kind, learnt=False)
        return FeatureScaling(self._centre, self._bound / 2, self._kind)

    def _values(self) -> Doubles:
        """Return [adding, d] distances from the centre."""
        sparse: bool = issparse(self._rows)
        return np.asarray(self._rows.toarray() if sparse else self._rows, np.float64) - self._centre

    def _counts(self) -> Doubles:
        """Return [adding, d · BUCKETS] one count for each feature, at its octave."""
        values = self._values()
        vectors = np.zeros((*values.shape, BUCKETS))
        np.put_along_axis(vectors, octaves(values)[:, :, None], self._one, axis=2)
        return vectors.reshape(len(values), self._features * BUCKETS)

    def _count(self) -> Doubles:
        """Return [d · BUCKETS] the sum of `_counts`, without expanding sparse features."""
        sparse: bool = issparse(self._rows)
        if sparse:
            places, column = octaves(self._rows.data.astype(np.float64)), self._rows.indices
        else:
            places = octaves(self._values()).ravel()
            column = np.tile(np.arange(self._features), len(self.adding))
        size = self._features * BUCKETS
        counts = np.bincount(column.astype(np.int64) * BUCKETS + places, minlength=size)
        if sparse:
            stored = np.bincount(column, minlength=self._features)
            counts[::BUCKETS] += len(self.adding) - stored
        total: Doubles = (counts * self._one).astype(np.float64)
        return total

    def _means(self) -> Doubles:
        """Return [adding, d] clipped values in units of the bounds, rounded to the fixed point."""
        within = np.clip(self._values() / self._bound, -1, 1) * self._one
        rounded: Doubles = np.rint(within * self._steps) / self._steps
        return rounded


def octaves(values: Doubles) -> Ints:
    """Return the bucket of each number: 0 for zero, otherwise 1 + its octave from `MIN_POWER`."""
    _, power = np.frexp(values)  # |x| in [2^(power - 1), 2^power)
    bucket = np.clip(power - MIN_POWER, 1, POWERS)
    found: Ints = np.where(np.abs(values) < 2.0**MIN_POWER, 0, bucket).astype(np.int64)
    return found


def _bounds(histogram: Doubles, error: float) -> tuple[Doubles, Flags]:
    """Return [d] the upper end of the window with most devices, and whether it is significant."""
    sizes = np.pad(histogram[:, 1:], ((0, 0), (WINDOW - 1, 0)))
    windows = np.sum([sizes[:, k : k + POWERS] for k in range(WINDOW)], axis=0)
    best = windows.argmax(axis=1)
    most = np.take_along_axis(windows, best[:, None], axis=1)[:, 0]
    upper: Doubles = 2.0 ** (MIN_POWER + 1.0 + best)
    return upper, most > significant_count(error)


def significant_count(error: float) -> float:
    """Return the number of devices in a window above which it is significant.

    Args:
        error: standard deviation of the noise of one count.
    """
    return max(0.5, CLEAR * error * math.sqrt(WINDOW))


class FeatureForm(TypedDict):
    """Public facts about features that a schedule depends on."""

    signed: bool
    """True if scaled features may be negative."""
    scaling: Scaling
    """Kind of scaling; never `auto`."""
    bounded: bool
    """True if all features lie between -1 and 1."""


def feature_form(facts: GraphFacts, strict: "StrictSettings") -> FeatureForm:
    """Return the form of the features of a graph under these settings.

    Raises:
        UsageError: the settings of scaling contradict the features or each other.
    """
    scaling = _scaling(facts, strict)
    return FeatureForm(
        signed=scaling == "standard" or may_be_negative(facts, strict),
        scaling=scaling,
        bounded=facts.bounded,
    )


def may_be_negative(facts: GraphFacts, strict: "StrictSettings") -> bool:
    """Return whether features may be negative; with `auto`, a public fact about the graph."""
    if strict.signs != "auto":
        return strict.signs == "signed"
    return facts.signed


def _scaling(facts: GraphFacts, strict: "StrictSettings") -> Scaling:
    sparse = facts.sparse
    if strict.scaling == "auto":
        if facts.bounded:
            return "none"
        return "size" if sparse or strict.signs == "nonnegative" else "standard"
    if strict.scaling == "standard" and sparse:
        raise UsageError(
            "`scaling='standard'` would fill the zeros of sparse features; use `scaling='size'`"
        )
    if strict.scaling == "standard" and strict.signs == "nonnegative":
        raise UsageError(
            "`scaling='standard'` shifts features below 0, and `signs='nonnegative'` cuts them off "
            "there; use `scaling='size'`, or leave `signs` out"
        )
    return strict.scaling


class OuterVectors(NamedTuple):
    """A vector for each device: its row ⊗ its slope, then `rest`."""

    rows: Any
    """[devices, d] sparse or dense."""
    slope: Doubles
    """[devices, k]"""
    rest: Doubles
    """[devices, m]"""

    def dense(self) -> Doubles:
        """Return [devices, d·k + m] the products as a dense array."""
        outer = dense(self.rows)[:, :, None] * self.slope[:, None, :]
        table = self.rows.shape[1] * self.slope.shape[1]
        return np.concatenate([outer.reshape(len(self.slope), table), self.rest], axis=1)

    def inner(self, total: Doubles) -> Doubles:
        """Return [devices] inner products with one vector of d·k + m numbers."""
        table = total[: self.rows.shape[1] * self.slope.shape[1]]
        by_class = np.asarray(self.rows @ table.reshape(self.rows.shape[1], -1))
        product: Doubles = (by_class * self.slope).sum(axis=1)
        return product + self.rest @ total[len(table) :]

    def squared_distance(self, other: "OuterVectors") -> Doubles:
        """Return [devices] ‖x ⊗ s - x' ⊗ s'‖² = |x|²|s|² + |x'|²|s'|² - 2⟨x, x'⟩⟨s, s'⟩ + rest."""
        lengths = [_row_products(v.rows, v.rows) * _squares(v.slope) for v in (self, other)]
        common = _row_products(self.rows, other.rows) * (self.slope * other.slope).sum(axis=1)
        square: Doubles = np.maximum(0.0, lengths[0] + lengths[1] - 2 * common)
        return square + _squares(self.rest - other.rest)


def _squares(rows: Doubles) -> Doubles:
    squares: Doubles = (rows**2).sum(axis=1)
    return squares


def _row_products(one: Any, two: Any) -> Doubles:
    """Return [rows] inner products of rows, in double precision."""
    sparse: bool = issparse(one)
    if sparse:
        products = one.astype(np.float64).multiply(two.astype(np.float64)).sum(axis=1)
        return np.asarray(products, np.float64).ravel()
    product: Doubles = (np.asarray(one, np.float64) * np.asarray(two, np.float64)).sum(axis=1)
    return product
