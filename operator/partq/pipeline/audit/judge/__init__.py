"""The judgement of the record: what each check keeps in mind, line by line."""
