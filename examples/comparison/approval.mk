# Sends the letter with the text of message.txt if approved.txt says yes, which a person writes: make, look, write, make.
.DELETE_ON_ERROR:
done: letter.txt approved.txt
	case $$(cat approved.txt) in \
	yes) cp letter.txt sent.txt ;; \
	no) ;; \
	*) echo 'approved.txt: yes or no?' >&2; exit 1 ;; \
	esac
	touch $@
letter.txt: message.txt
	(echo Dear all,; cat $<) > $@
approved.txt: letter.txt
	@echo "May letter.txt be sent? Write yes or no to $@." >&2; exit 1
