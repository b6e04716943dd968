"""Measurements of reads of a real HDFS whose links are shaped: see scripts/hdfs-lab."""
