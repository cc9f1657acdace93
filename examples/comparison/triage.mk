# Appends each ticket of tickets/*.txt to the file of its kind. CLASSIFY prints the kind of a ticket on stdin.
TICKETS := $(wildcard tickets/*.txt)
.DELETE_ON_ERROR:
all: $(TICKETS:.txt=.sorted)
%.kind: %.txt
	$(CLASSIFY) < $< > $@
%.sorted: %.kind %.txt
	case $$(cat $<) in \
	bug) cat $*.txt >> bugs.txt ;; \
	question) cat $*.txt >> questions.txt ;; \
	*) echo "$*: no kind of ticket" >&2; exit 1 ;; \
	esac
	touch $@
.SECONDARY:
