"""The type of the values that filters compare with bounds."""

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
