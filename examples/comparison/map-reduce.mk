# Counts the words of texts/*.txt, and adds up the counts.
TEXTS := $(wildcard texts/*.txt)
.DELETE_ON_ERROR:
total: $(TEXTS:.txt=.count)
	awk '{ words += $$1 } END { printf "{\"files\":%d,\"words\":%d}\n", NR, words }' $^ > $@
%.count: %.txt
	wc -w < $< > $@
