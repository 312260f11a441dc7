"""The smallest file of every format of spot markets, made up in the form of the real files.

Each has a name and a text.
"""

from __future__ import annotations

from collections.abc import Mapping

SAMPLES: Mapping[str, tuple[str, str]] = {
    "spot-counts": (
        "east-a_v100_4.json",
        '{"metadata": {"gap_seconds": 60}, "data": [1, 1, 0, 2, 2, 0]}',
    ),
    "spot-events": ("p9.csv", "0,add,n1\n0,add,n2\n90000,remove,n1\n120000,add,n3\n"),
    "spot-held": (
        "z.txt",
        (
            "2021-12-10, 13:00:00, 8\n2021-12-10, 13:02:00, 6\n2021-12-10, 13:01:00, 7\n"
            "2021-12-10, 13:01:00, 5\n"
        ),
    ),
    "spot-prices": (
        "p3.json",
        """{"NextToken": "", "SpotPriceHistory": [
{"AvailabilityZone": "e-1a", "InstanceType": "p3.8xlarge", "ProductDescription": "L",\
 "SpotPrice": "4.000000",
"Timestamp": "2020-02-27T14:00:00.000Z"},
{"AvailabilityZone": "e-1a", "InstanceType": "p3.8xlarge", "ProductDescription": "L",\
 "SpotPrice": "3.600000",
"Timestamp": "2020-02-27T13:00:00.000Z"}]}""",
    ),
    "spot-log": (
        "asked.out",
        """[2020-03-15T10:00:00.000Z] Created instance i-1 with 4 GPU(s) of type v100 in zone e-1b
[2020-03-15T10:01:00.000Z] Instance with 8 GPU(s) of type k80 creation failed
[2020-03-15T10:10:00.000Z] Instance i-1 running in zone e-1b
[2020-03-15T10:20:00.000Z] Instance i-1 not running in zone e-1b
[2020-03-15T10:21:00.000Z] Successfully deleted instance i-1
""",
    ),
    "catalog": (
        "list.csv",
        """InstanceType,AcceleratorName,AcceleratorCount,Region,AvailabilityZone,Price,SpotPrice
a2-highgpu-2g,,,r,r-a,2.0,0.5
,A100,2,r,r-a,6.0,2.5
one,H100,1,r,r-b,3.0,
,tpu-v4,1,r,r-b,700.0,700.0
""",
    ),
}
