"""A second implementation of the simulator, in NumPy, from its written definition alone.

It shares no line with the C program and is written to be read: heads (numpy-pcg64 or captured),
RoPE, the quantizer's stages and every metric, each as the documentation states it. float32 where
codes depend on it, float64 for attention. Slow and simple on purpose; compare.py holds it against
the program. Run alone, it prints the published asymmetry table and fails when a digit differs.

Shapes: G kv heads, H query heads, T tokens, Q queries, D head_dim.
"""
import math
import sys
from dataclasses import dataclass, field

try:
    import h5py
    import ml_dtypes
    import numpy as np
except ImportError as missing:
    if __name__ != "__main__":
        raise
    print(f"skipped: {missing} (pip install -r tests/requirements.txt)")
    sys.exit(77)

F32 = np.float32
KEPT = -(1 << 30)  # code of an element that stays at 16 bit


# ---------------------------------------------------------------------------------------- schemes

@dataclass
class Quantizer:
    """A parsed shorthand: format[/tile][:option[=value]]..."""
    format: str
    tile: str = ""
    options: dict = field(default_factory=dict)

    @classmethod
    def parse(cls, text):
        head, *rest = text.split(":")
        options = {}
        for part in rest:
            if options and part.isdigit():  # the tail of static=seed:K
                last = next(reversed(options))
                options[last] += ":" + part
                continue
            name, _, value = part.partition("=")
            options[name] = value
        name, _, tile = head.partition("/")
        return cls(name, tile, options)

    def has(self, name):
        return name in self.options

    def number(self, name, default=0):
        return float(self.options[name]) if self.options.get(name) else default


# ------------------------------------------------------------------------------------------- rope

class Rope:
    """Rotary embedding (Su et al. 2021): angles and rotation in double, rounded to float once."""

    def __init__(self, settings, head_dim):
        settings = {} if settings in (None, "none") else settings
        self.layout = settings.get("layout", "none")
        self.dim = settings.get("rotary_dim", 0) or head_dim
        if self.layout == "none":
            self.dim = 0
            return
        base = settings.get("base", 10000.0)
        scaling = settings.get("scaling", {})
        kind, factor = scaling.get("type", "none"), scaling.get("factor", 1.0)
        if kind == "ntk":
            base = base * factor ** (self.dim / (self.dim - 2))
        i = np.arange(self.dim // 2, dtype=np.float64)
        theta = base ** (-2.0 * i / self.dim)
        self.magnitude = 1.0
        original = scaling.get("original_length", settings.get("training_length", 0))
        if kind == "linear":
            theta = theta / factor
        elif kind == "llama3":
            low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
            turns = original * theta / (2 * math.pi)  # original length / wavelength
            smooth = np.clip((turns - low) / (high - low), 0, 1)
            theta = (1 - smooth) * theta / factor + smooth * theta
        elif kind == "yarn":
            def pair_of(rotations):
                return (self.dim * math.log(original / (rotations * 2 * math.pi))
                        / (2 * math.log(base)))
            low = max(math.floor(pair_of(scaling.get("beta_fast", 32))), 0)
            high = min(math.ceil(pair_of(scaling.get("beta_slow", 1))), self.dim - 1)
            ramp = np.clip((i - low) / max(high - low, 1e-3), 0, 1)
            theta = theta / factor * ramp + theta * (1 - ramp)
            self.magnitude = 0.1 * math.log(factor) + 1
        self.theta = theta

    def partner(self, head_dim):
        """The channel each channel is paired with; itself where nothing is rotated."""
        c = np.arange(head_dim)
        half = self.dim // 2
        if self.layout == "half":
            return np.where(c < half, c + half, np.where(c < self.dim, c - half, c))
        if self.layout == "interleaved":
            return np.where(c < self.dim, c ^ 1, c)
        return c

    def rotate(self, x, positions, inverse=False):
        """x [..., n, D] at positions [n]."""
        if self.layout == "none":
            return x
        half = self.dim // 2
        a, b = ((slice(0, half), slice(half, self.dim)) if self.layout == "half" else
                (slice(0, self.dim, 2), slice(1, self.dim, 2)))
        angle = np.asarray(positions, np.float64)[:, None] * self.theta
        size = 1 / self.magnitude if inverse else self.magnitude
        cos, sin = np.cos(angle) * size, np.sin(angle) * (-size if inverse else size)
        y, xa, xb = x.copy(), x[..., a].astype(np.float64), x[..., b].astype(np.float64)
        y[..., a] = (xa * cos - xb * sin).astype(F32)
        y[..., b] = (xa * sin + xb * cos).astype(F32)
        return y


# ------------------------------------------------------------------------------------------ heads

@dataclass
class Layer:
    key: np.ndarray       # [G][T][D] as attention uses it
    key_pre: np.ndarray   # [G][T][D] before RoPE
    value: np.ndarray     # [G][T][D]
    query: np.ndarray     # [H][Q][D] after RoPE
    query_position: np.ndarray
    window: int           # 0 = full attention
    rope: Rope
    number: int = 0
    others: list = field(default_factory=list)  # the same layer of calibration seeds


def synthetic(heads, seed):
    """All layers of numpy.random.default_rng(seed): layer after layer keys, then values, then
    queries, row-major; scaled in double, rounded to float32 once."""
    T, D, Q = heads["tokens"], heads["head_dim"], heads["queries"]
    G = heads.get("kv_heads", 1)
    H = heads.get("query_heads", 0) or G
    rng, rope, layers = np.random.default_rng(seed), Rope(heads.get("rope"), D), []
    position = np.arange(T - Q, T)
    for number in range(heads.get("layers", 1)):
        key, value = rng.standard_normal((G, T, D)), rng.standard_normal((G, T, D))
        query = rng.standard_normal((H, Q, D)) * heads.get("query", {}).get("gain", 1.0)
        for tensor, name in ((key, "outliers"), (value, "value_outliers")):
            if name in heads:
                tensor[..., heads[name]["channels"]] *= heads[name].get("scale", 1.0)
        key, value, query = (x.astype(F32) for x in (key, value, query))
        layers.append(Layer(rope.rotate(key, np.arange(T)), key, value,
                            rope.rotate(query, position), position, heads.get("window", 0), rope,
                            number))
    return layers


def captured(path):
    """Every layer of a capture file, in the order of their numbers."""
    layers = []
    with h5py.File(path) as file:
        for group in file.values():
            at = group.attrs
            text = lambda v: v.decode() if isinstance(v, bytes) else str(v)
            key, value, query = (group[n][()].astype(F32) for n in ("key", "value", "query"))
            rope = Rope({"layout": text(at["rope_layout"]), "base": float(at["rope_theta"])},
                        key.shape[2])
            tokens, position = np.arange(key.shape[1]), group["query_position"][()]
            if text(at["key_position"]) == "pre-rope":
                pre, key = key, rope.rotate(key, tokens)
            else:
                pre = rope.rotate(key, tokens, inverse=True)
            layers.append(Layer(key, pre, value, query, position, int(at["window"]), rope,
                                int(at["layer"])))
    return sorted(layers, key=lambda one: one.number)


# -------------------------------------------------------------------------- grids: codes and values

FLOATS = {"e4m3": ml_dtypes.float8_e4m3fn, "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
          "e5m2": ml_dtypes.float8_e5m2, "e5m2fnuz": ml_dtypes.float8_e5m2fnuz}


def float_grid(name, x):
    """Nearest representable number, saturating: (code, value)."""
    kind = FLOATS[name]
    top = float(ml_dtypes.finfo(kind).max)
    y = np.clip(x, -top, top).astype(kind)
    return y.view(np.uint8).astype(np.int64), y.astype(F32)


def f16(x):
    return x.astype(np.float16).astype(F32)


def bf16(x):
    return x.astype(ml_dtypes.bfloat16).astype(F32)


def reciprocal(s, overflow):
    """1 / s in float32; 0 for s = 0, and `overflow` where it would be infinite."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(s != 0, F32(1) / s, F32(0)).astype(F32)
    return np.where(np.isinf(inverse), F32(overflow), inverse)


def q8_0(x):
    """x [..., 32]: d = absmax / 127, codes by the unrounded d, half away from zero."""
    d = (np.abs(x).max(-1, keepdims=True) / F32(127)).astype(F32)
    y = x * reciprocal(d, 0)
    whole = np.trunc(y)
    code = whole + np.sign(y) * (np.abs(y - whole) >= 0.5)
    return code.astype(np.int64), (code.astype(F32) * f16(d)).astype(F32)


def largest(x):
    """The number of largest magnitude with its sign, the first of several: [..., 1]."""
    return np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)


def ggml_signed(x, half):
    """q4_0 (half = 8), q5_0 (16): d = the largest / -half, which has code 0."""
    d = (largest(x) / F32(-half)).astype(F32)
    y = (x * reciprocal(d, 0)).astype(F32) + F32(half + 0.5)
    code = np.minimum(np.trunc(y), 2 * half - 1)
    return code.astype(np.int64), ((code - half).astype(F32) * f16(d)).astype(F32)


def ggml_minimum(x, top):
    """q4_1 (top = 15), q5_1 (31): from the minimum in steps of the range / top."""
    low = x.min(-1, keepdims=True)
    d = ((x.max(-1, keepdims=True) - low) / F32(top)).astype(F32)
    code = np.minimum(np.trunc((x - low) * reciprocal(d, 0) + F32(0.5)), top)
    return code.astype(np.int64), (code.astype(F32) * f16(d)).astype(F32) + f16(low)


IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], F32)


def iq4_nl(x):
    """Nearest of 16 fixed numbers, up in a tie; d by least squares under weights x^2, in order."""
    m = largest(x)
    is_zero = np.abs(m) < F32(1e-15)
    d0 = np.where(is_zero, F32(1), m) / F32(-127)
    y = x * np.where(is_zero, F32(0), F32(1) / d0)
    distance = np.abs(y[..., None].astype(np.float64) - IQ4_NL)
    code = 15 - distance[..., ::-1].argmin(-1)
    v, up, down = IQ4_NL[code], np.zeros(m.shape[:-1], F32), np.zeros(m.shape[:-1], F32)
    for i in range(32):
        weighted = x[..., i] * x[..., i] * v[..., i]
        up, down = up + weighted * x[..., i], down + weighted * v[..., i]
    with np.errstate(divide="ignore"):
        d = np.where(is_zero[..., 0], F32(0), up / down).astype(F32)
    return code.astype(np.int64), f16(d)[..., None] * v


def exl(x, bits):
    """Mid-rise: cells of equal width between -s and s, values in their middle."""
    s, half = np.abs(x).max(-1, keepdims=True) + F32(1e-10), F32(2 ** (bits - 1))
    code = np.clip(np.floor(x * (F32(1) / s) * half + half), 0, 2 ** bits - 1)
    return code.astype(np.int64), ((code.astype(F32) - half + F32(0.5)) / half * f16(s)).astype(F32)


BLOCKS = {  # name: (codes and values of x [..., 32], stored bytes)
    "q8_0": (q8_0, 34),
    "q5_1": (lambda x: ggml_minimum(x, 31), 24),
    "q5_0": (lambda x: ggml_signed(x, 16), 22),
    "q4_1": (lambda x: ggml_minimum(x, 15), 20),
    "q4_0": (lambda x: ggml_signed(x, 8), 18),
    "iq4_nl": (iq4_nl, 18),
    **{f"exl{b}": (lambda x, b=b: exl(x, b), 4 * b + 2) for b in range(2, 9)},
}


# ------------------------------------------------------------------------------------- transforms

def hadamard(x, n):
    """Orthonormal Sylvester-Hadamard on blocks of n channels, butterflies in float32."""
    y = x.reshape(x.shape[:-1] + (-1, n)).copy()
    h = 1
    while h < n:
        z = y.reshape(y.shape[:-1] + (n // (2 * h), 2, h))
        y = np.stack((z[..., 0, :] + z[..., 1, :], z[..., 0, :] - z[..., 1, :]), -2)
        y = y.reshape(y.shape[:-3] + (n,))
        h *= 2
    return (y * F32(1 / math.sqrt(n))).reshape(x.shape)


def transform(x, q, pair):
    """x [G][n][D] -> (transformed, function that undoes it, stored bits)."""
    undo, bits = [], 0
    G, _, D = x.shape
    if q.has("center"):
        mean = x.mean(1, dtype=np.float64, keepdims=True).astype(F32)
        mean = f16(np.clip(mean, -65504, 65504))
        x = x - mean
        undo.append(lambda y, mean=mean: y + mean)
        bits += 16 * G * D
    if q.has("smooth"):
        top = np.abs(x).max(1, keepdims=True)
        top = np.maximum(top, top[..., pair])
        power = top.astype(np.float64) ** q.number("smooth", 0.5)
        factor = np.where(top > 0, power, 1.0).astype(F32)
        x = x / factor
        undo.append(lambda y, factor=factor: y * factor)
    if q.has("hadamard"):
        n = int(q.number("hadamard", D))
        x = hadamard(x, n)
        undo.append(lambda y: hadamard(y, n))

    def inverse(y):
        for step in reversed(undo):
            y = step(y)
        return y
    return x, inverse, bits


# ------------------------------------------------------------------------------------------ tiles

class Tiles:
    """Views x [G][n][D] as a matrix [tiles][elements of one tile]; NaN pads ragged tiles."""

    def __init__(self, tile, shape):
        G, n, D = shape
        self.shape = shape
        spans = {"tensor": (G, n, D), "head": (1, n, D), "channel": (1, n, 1), "token": (1, 1, D),
                 "token-all": (G, 1, D)}
        if tile in spans:
            self.span = spans[tile]
        else:
            tokens, channels = tile.split("x")
            self.span = (1, n if tokens == "all" else int(tokens),
                         D if channels == "all" else int(channels))
        self.count = [-(-size // span) for size, span in zip(shape, self.span)]

    def split(self, x):
        pad = [(0, c * s - size) for c, s, size in zip(self.count, self.span, x.shape)]
        x = np.pad(x, pad, constant_values=np.nan)
        (g, t, c), (a, b, d) = self.count, self.span
        return x.reshape(g, a, t, b, c, d).transpose(0, 2, 4, 1, 3, 5).reshape(g * t * c, -1)

    def join(self, rows):
        (g, t, c), (a, b, d) = self.count, self.span
        x = rows.reshape(g, t, c, a, b, d).transpose(0, 3, 1, 4, 2, 5)
        x = x.reshape(g * a, t * b, c * d)
        return x[tuple(slice(0, size) for size in self.shape)]


def percentile(rows, p):
    """p-th percentile of each row's numbers, linear between order statistics; rows [m][n] may hold
    NaN for "not there"."""
    ordered = np.sort(rows, axis=1).astype(np.float64)  # NaN last
    last = np.maximum((~np.isnan(rows)).sum(1) - 1, 0)
    place = p / 100.0 * last
    below = np.floor(place).astype(int)
    above = np.minimum(below + 1, last)
    take = lambda i: np.take_along_axis(ordered, i[:, None], 1)[:, 0]
    low, high = take(below), take(above)
    return (low + (high - low) * (place - below)).astype(F32)


# ---------------------------------------------------------------------------------- range and grid

def stored_scale(s, storage):
    """What a scale or a zero point becomes when it is stored; saturating."""
    if storage == "f16":
        return f16(np.clip(s, -65504, 65504))
    if storage == "bf16":
        return bf16(s)
    if storage == "e8m0":  # a power of two, rounded up; there is no zero
        mantissa, exponent = np.frexp(s)
        exponent = np.where(s > 0, exponent - (mantissa == 0.5), -127)
        return np.ldexp(F32(1), np.maximum(exponent, -127))
    if storage == "e4m3":  # under one f32 scale for all of the layer's tiles
        top = (s.max() / F32(448)).astype(F32)
        return float_grid("e4m3", s / top)[1] * top if top > 0 else s
    return s


def apply_grid(q, rows, low, high):
    """Codes and values of rows [tiles][n] for ranges low, high [tiles] (symmetric: high = amax)."""
    storage = q.options.get("scale", "f32")
    if q.format.startswith("int"):
        b = int(q.format[3:])
        if q.has("zero"):
            s = stored_scale(((high - low) / F32(2 ** b - 1)).astype(F32), storage)[:, None]
            m = stored_scale(low, storage)[:, None]
            bottom, top = 0, 2 ** b - 1
        else:
            top = 2 ** (b - 1) - 1
            bottom = -top
            s = stored_scale((high / F32(top)).astype(F32), storage)[:, None]
            m = F32(0)
        if q.has("unit"):
            s = np.ones_like(s)
        with np.errstate(over="ignore"):
            code = np.clip(np.rint((rows - m) * reciprocal(s, np.finfo(F32).max)), bottom, top)
        value = (code.astype(np.float64) * s + m).astype(F32)  # one rounding, as fmaf
        return code, value
    top = F32(float(ml_dtypes.finfo(FLOATS[q.format]).max))
    s = stored_scale((high / top).astype(F32), storage)[:, None]
    if q.has("unit"):
        s = np.ones_like(s)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.where(s > 0, rows / s, F32(0)).astype(F32)
    code, value = float_grid(q.format, np.nan_to_num(scaled))
    return code, value * s


def find_range(q, rows):
    """(low, high) of each row by the scheme's range rule; NaN in rows is "not there"."""
    size = np.abs(rows)
    if q.has("percentile"):
        p = q.number("percentile")
        if q.has("zero"):
            return percentile(rows, 100 - p), percentile(rows, p)
        high = percentile(size, p)
        return -high, high
    empty = np.isnan(rows).all(1)
    low = np.where(empty, 0, np.nanmin(np.where(empty[:, None], 0, rows), 1)).astype(F32)
    high = np.where(empty, 0, np.nanmax(np.where(empty[:, None], 0, rows), 1)).astype(F32)
    if not q.has("zero"):
        high = np.maximum(np.abs(low), np.abs(high))
    if q.has("mse"):
        best = np.full(len(rows), np.inf)
        factor = np.ones(len(rows), F32)
        for percent in range(100, 49, -1):
            f = F32(percent / 100)
            _, value = apply_grid(q, rows, low * f, high * f)
            error = np.nansum((value.astype(np.float64) - rows) ** 2, 1)
            factor = np.where(error < best, f, factor)
            best = np.minimum(error, best)
        low, high = low * factor, high * factor
    return low, high


# --------------------------------------------------------------------------------- the quantizer

def quantize(x, q, pair, others=()):
    """x [G][T][D] float32 in the quantizer's position -> (values, codes, stored bits).
    pair: RoPE partner of each channel, for smooth; others: tensors like x of calibration seeds."""
    G, T, D = x.shape
    if q.format == "f32":
        return x, None, 32 * x.size
    first = min(int(q.number("sinks")), T)
    kept = max(int(q.number("window")), T % int(q.number("flush")) if q.has("flush") else 0)
    end = max(T - kept, first)
    body = x[:, first:end]
    value, code = f16(x), np.full(x.shape, KEPT, np.int64)
    bits = 16 * (x.size - body.size)
    if body.size == 0:
        return value, code, bits
    y, inverse, extra = transform(body, q, pair)
    bits += extra
    if q.format in ("f16", "bf16"):
        c = y.astype(np.float16 if q.format == "f16" else ml_dtypes.bfloat16)
        code[:, first:end], value[:, first:end] = c.view(np.uint16), inverse(c.astype(F32))
        return value, code, bits + 16 * y.size
    if q.format in BLOCKS:
        encode, size = BLOCKS[q.format]
        c, v = encode(y.reshape(G, -1, D // 32, 32))
        code[:, first:end], value[:, first:end] = c.reshape(y.shape), inverse(v.reshape(y.shape))
        return value, code, bits + y.size // 32 * size * 8
    tiles = Tiles(q.tile, y.shape)
    sparse = np.zeros(y.shape, bool)
    if q.has("outliers"):
        p = q.number("outliers")
        by_channel = tiles.span[2] == 1 and q.tile != "token"
        vectors = Tiles("channel" if by_channel else "token", y.shape)
        rows = vectors.split(y)
        low, high = percentile(rows, p / 2)[:, None], percentile(rows, 100 - p / 2)[:, None]
        sparse = vectors.join((rows <= low) | (rows >= high))
    dense = np.where(sparse, F32(np.nan), y)
    rows = tiles.split(dense)
    if q.options.get("static", "").startswith("seed:"):
        ranges = [find_range(q, tiles.split(other[:, first:end])) for other in others]
        low, high = np.min([a for a, _ in ranges], 0), np.max([b for _, b in ranges], 0)
    elif q.has("static"):
        N = int(q.number("static"))
        low, high = find_range(q, Tiles(q.tile, (G, min(N, y.shape[1]), D)).split(dense[:, :N]))
    else:
        low, high = find_range(q, rows)
    c, v = apply_grid(q, np.nan_to_num(rows), low, high)
    v, c = tiles.join(v), tiles.join(c).astype(np.int64)
    code[:, first:end] = np.where(sparse, KEPT, c)
    value[:, first:end] = inverse(np.where(sparse, f16(y), v))
    width = int(q.format[3:]) if q.format.startswith("int") else 8
    bits += width * (y.size - sparse.sum()) + 32 * sparse.sum()
    if not q.has("unit") and not q.has("static"):
        each = {"f32": 32, "f16": 16, "bf16": 16, "e8m0": 8, "e4m3": 8}[
            q.options.get("scale", "f32")]
        bits += math.prod(tiles.count) * each * (2 if q.has("zero") else 1)
        bits += 32 if q.options.get("scale") == "e4m3" else 0  # the one above them
    return value, code, int(bits)


def calibration(layer, q):
    text = q.options.get("static", "")
    return layer.others[:int(text[5:])] if text.startswith("seed:") else []


def quantized_key(layer, text):
    """(keys as attention uses them, codes, bits)."""
    q = Quantizer.parse(text)
    channels, others = np.arange(layer.key.shape[2]), calibration(layer, q)
    if q.has("pre-rope"):
        value, code, bits = quantize(layer.key_pre, q, channels, [o.key_pre for o in others])
        return layer.rope.rotate(value, np.arange(value.shape[1])), code, bits
    return quantize(layer.key, q, layer.rope.partner(len(channels)), [o.key for o in others])


def quantized_value(layer, text):
    q = Quantizer.parse(text)
    return quantize(layer.value, q, np.arange(layer.value.shape[2]),
                    [o.value for o in calibration(layer, q)])


# ---------------------------------------------------------------------------------------- metrics

def attention(query, key, value, visible):
    """query [R][D], key and value [T][D], visible [R][T] -> (logits, weights, outputs), double."""
    logits = query.astype(np.float64) @ key.astype(np.float64).T / math.sqrt(query.shape[1])
    masked = np.where(visible, logits, -np.inf)
    weights = np.exp(masked - masked.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    return logits, weights, weights @ value.astype(np.float64)


def ratio(error, exact):
    a, b = np.linalg.norm(error), np.linalg.norm(exact)
    return a / b if b else (0.0 if a == 0 else np.inf)


def metrics(layer, key_hat, value_hat):
    """Every metric per kv head, from quantized_key's and quantized_value's triples: {name: [G]}."""
    (K, code, key_bits), (V, _, value_bits) = key_hat, value_hat
    G, T, D = layer.key.shape
    group = layer.query.shape[0] // G
    position = np.tile(layer.query_position, group)[:, None]
    token = np.arange(T)[None, :]
    visible = token <= position
    if layer.window:
        visible &= token > position - layer.window
    found = []
    for g in range(G):
        query = layer.query[g * group:(g + 1) * group].reshape(-1, D)
        l, p, o = attention(query, layer.key[g], layer.value[g], visible)
        lh, ph, oh = attention(query, K[g], V[g], visible)
        m = {}
        each = np.linalg.norm(oh - o, axis=1) / np.linalg.norm(o, axis=1)
        m["out_err"] = ratio(oh - o, o)
        m["out_err_median"], m["out_err_p95"] = np.median(each), np.percentile(each, 95)
        m["out_err_max"] = each.max()
        d = np.where(visible, np.abs(lh - l), 0)
        m["logit_err_max"], m["largest_logit"] = d.max(), np.abs(l[visible]).max()
        m["logit_err_rms"] = math.sqrt((d ** 2).sum() / visible.sum())
        m["weight_factor"] = math.exp(min(d.max(), 700))
        # KL from logits, so that weights that underflow do not make it infinite
        log_p = l - np.log(np.exp(np.where(visible, l, -np.inf)
                                  - l.max(1, keepdims=True)).sum(1, keepdims=True)) \
            - l.max(1, keepdims=True)
        log_ph = lh - np.log(np.exp(np.where(visible, lh, -np.inf)
                                    - lh.max(1, keepdims=True)).sum(1, keepdims=True)) \
            - lh.max(1, keepdims=True)
        kl = (p * np.where(visible, log_p - log_ph, 0)).sum(1)
        tv = np.abs(p - ph).sum(1) / 2
        m["attn_kl"], m["attn_kl_max"] = kl.mean(), kl.max()
        m["attn_tv"], m["attn_tv_max"] = tv.mean(), tv.max()
        rank = lambda logits: np.argsort(-np.where(visible, logits, -np.inf), 1, kind="stable")
        exact, quantized = rank(l), rank(lh)
        for k in (1, 8, 64):
            shares = []
            for row, seen in enumerate(visible.sum(1)):
                n = min(k, seen)
                shares.append(len(np.intersect1d(exact[row, :n], quantized[row, :n])) / n)
            m[f"top{k}_agree"] = np.mean(shares)
        m["key_err"] = ratio(K[g].astype(np.float64) - layer.key[g], layer.key[g])
        m["value_err"] = ratio(V[g].astype(np.float64) - layer.value[g], layer.value[g])
        size = np.abs(layer.key[g].astype(np.float64))
        m["key_absmax_over_median"] = size.max() / np.median(size)
        m["key_levels"] = np.nan if code is None else np.median(
            [len(np.setdiff1d(code[g, :, c], [KEPT])) for c in range(D)])
        m["bits_key"], m["bits_value"] = (b / (G * T * D) for b in (key_bits, value_bits))
        m["bits"] = (m["bits_key"] + m["bits_value"]) / 2
        m["bytes_per_token"] = (key_bits + value_bits) / 8 / T
        found.append(m)
    return {name: np.array([m[name] for m in found]) for name in found[0]}


def evaluate(layer, schemes):
    """schemes: [(key text, value text)] -> [metrics]. Each distinct quantizer runs once."""
    keys = {k: quantized_key(layer, k) for k in dict.fromkeys(k for k, _ in schemes)}
    values = {v: quantized_value(layer, v) for v in dict.fromkeys(v for _, v in schemes)}
    return [metrics(layer, keys[k], values[v]) for k, v in schemes]


PUBLISHED = (("int8/tensor", "int8/tensor", "0.1049", "0.862"),
             ("int8/channel", "int8/token", "0.0192", "0.099"),
             ("f32", "int8/token", "0.0070", "0.000"),
             ("int8/tensor", "f32", "0.1044", "0.862"))

if __name__ == "__main__":
    one, = synthetic({"tokens": 4096, "head_dim": 128, "queries": 1,
                      "outliers": {"channels": [7, 23, 88], "scale": 20}}, seed=0)
    wrong = 0
    for row, m in zip(PUBLISHED, evaluate(one, [row[:2] for row in PUBLISHED])):
        line = f"{m['out_err'][0]:.4f}", f"{m['logit_err_max'][0]:.3f}"
        wrong += line != row[2:]
        print(f"{row[0]:14}{row[1]:14}{line[0]:>8}{line[1]:>8}"
              + ("" if line == row[2:] else f"   published: {row[2]} {row[3]}"))
    print(f"absmax/median|key| {m['key_absmax_over_median'][0]:.2f} (published 129.65)")
    sys.exit(wrong != 0)
