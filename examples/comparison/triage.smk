# Appends each ticket of tickets/*.txt to the file of its kind. config["classify"] prints the kind of a ticket.
NAMES = glob_wildcards("tickets/{name}.txt").name
rule all:
    input: expand("tickets/{name}.sorted", name=NAMES)
rule classify:
    input: "tickets/{name}.txt"
    output: "tickets/{name}.kind"
    params: classify=config["classify"]
    shell: "{params.classify} < {input} > {output}"
rule sort:
    input: kind="tickets/{name}.kind", ticket="tickets/{name}.txt"
    output: touch("tickets/{name}.sorted")
    shell: """
        case $(cat {input.kind}) in
        bug) cat {input.ticket} >> bugs.txt ;;
        question) cat {input.ticket} >> questions.txt ;;
        *) echo "{wildcards.name}: no kind of ticket" >&2; exit 1 ;;
        esac
        """
