"""Single files outside of a data set, without keys and without the records of stages."""
