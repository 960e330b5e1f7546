"""Tests of hpub and hsub."""
