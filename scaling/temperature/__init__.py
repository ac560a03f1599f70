"""From the queries and keys of a real head to its temperature: inverse temperature, local exponent, which side of criticality.

tensors -> rows (distances of late queries) -> tail (exponent) -> predict (longer contexts) -> report (with its self-check)
"""

from scaling.temperature.record import HeadTemperature as HeadTemperature
from scaling.temperature.record import TemperatureReport as TemperatureReport
from scaling.temperature.report import head_temperatures as head_temperatures
