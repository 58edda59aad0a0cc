"""A result file opens in xarray and h5py with no code of ours, and holds what was written.

usage: xarray_opens.py WRITER: WRITER FILE writes the example of test_store.c.
"""

import os
import subprocess
import sys
import tempfile

try:
    import h5netcdf  # noqa: F401
    import h5py
    import netCDF4  # noqa: F401
    import numpy as np
    import xarray as xr
except ImportError as missing:
    print(f"skipped: {missing}; this test needs numpy, h5py, xarray, h5netcdf and netCDF4")
    sys.exit(77)

SCHEMES = ["K+V per-tensor INT8", "", "2é"]
TOKENS = [1024.0, 1025.0, 1026.0, 1027.0, 1028.0]


def check(data):
    assert dict(data.sizes) == {"scheme": 3, "heads.tokens": 5, "a": 1}, data.sizes
    assert [str(s) for s in data["scheme"].values] == SCHEMES, data["scheme"].values
    assert data["heads.tokens"].values.tolist() == TOKENS
    assert data["heads.tokens"].attrs["units"] == "1"
    assert list(data.data_vars) == ["z", "key_scheme", "scalar", "which"], list(data.data_vars)
    z = data["z"]
    assert z.dims == ("scheme", "heads.tokens", "a") and z.dtype == np.float64, z
    count = np.arange(15)
    expected = np.where(count % 7 == 0, np.nan, 0.1 * count).reshape(3, 5, 1)
    np.testing.assert_array_equal(z.values, expected)
    assert z.attrs["units"] == "nats" and z.attrs["long_name"] == "first array", z.attrs
    assert z.attrs["combine"] == "max", z.attrs
    assert [str(s) for s in data["key_scheme"].values] == SCHEMES
    assert np.isnan(data["scalar"].values) and data["scalar"].attrs["units"] == "s"
    assert data["which"].dims == ("a",) and data["which"].attrs["labels"] == "scheme"
    picked = data["z"].sel({"scheme": "2é", "heads.tokens": 1026})
    np.testing.assert_array_equal(picked.values, [0.1 * 12])
    attrs = data.attrs
    assert attrs["title"] == "A title" and attrs["kvant_schema"] == 1 and attrs["complete"] == 1
    assert attrs["config"] == "x" * 100000 and len(attrs["config_sha256"]) == 64
    assert attrs["argv"] == r"kvant sweep 'it'\''s.yaml' '' '?'", attrs["argv"]
    assert attrs["wall_time_s"] == 0.25


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "x.h5")
    subprocess.run([sys.argv[1], path], check=True)
    for engine in ("h5netcdf", "netcdf4"):
        with xr.open_dataset(path, engine=engine) as opened:
            check(opened.load())
        print(f"xarray {xr.__version__}, {engine}: opens")
    with h5py.File(path) as f:
        assert f["z"].dims[1][0].name == "/heads.tokens" and f["scheme"].asstr()[0] == SCHEMES[0]
    # a program that adds to the file does not stop the others from reading it
    with h5py.File(path, "a") as f:
        f.attrs["note"] = "added"
    with xr.open_dataset(path, engine="h5netcdf") as opened:
        check(opened.load())
        assert opened.attrs["note"] == "added"
