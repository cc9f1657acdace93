# Sends the letter with the text of message.txt if approved.txt says yes, which a person writes and starts it again.
rule done:
    input: letter="letter.txt", approved="approved.txt"
    output: touch("done")
    shell: """
        case $(cat {input.approved}) in
        yes) cp {input.letter} sent.txt ;;
        no) ;;
        *) echo 'approved.txt: yes or no?' >&2; exit 1 ;;
        esac
        """
rule letter:
    input: "message.txt"
    output: "letter.txt"
    shell: "(echo Dear all,; cat {input}) > {output}"
