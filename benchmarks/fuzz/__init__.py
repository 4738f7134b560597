"""Structure-aware mutations of everything that is read, each case in a child process with limits.

    python -m benchmarks.fuzz --cases 20000 --seed 1

A case passes where it ends as a correct read, as rows with an error code, or as one ``InterleavedError``. Another
exception, the end of the process, more than 3 GB, more than 20 s, or a read that an independent reader contradicts is a
finding. The same seed, kind and number give the same case.

Images go through all scorers and both CLIP preparations, which needs the extras ``nsfw`` and ``clip``. 15,000 of them:
``--kind image --cases 165000``.
"""
