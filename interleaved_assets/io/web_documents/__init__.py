"""Documents that name their images by URL, as OBELICS, MMC4, OmniCorpus and MINT-1T's web part are published."""
