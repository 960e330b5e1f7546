"""The loop of telemetry, analysis, plan and moves in a running network, which `plant` starts."""
