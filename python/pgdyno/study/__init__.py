"""The request: arms, workload, schedule, budget; the plan of a study, which fits into JSON."""
