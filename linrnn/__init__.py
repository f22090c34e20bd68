from linrnn.recurrence import scan, scan_planes

__all__ = ["scan", "scan_planes"]
