# Counts the words of texts/*.txt, and adds up the counts.
NAMES = glob_wildcards("texts/{name}.txt").name
rule total:
    input: expand("texts/{name}.count", name=NAMES)
    output: "total"
    shell: """awk '{{ words += $1 }} END {{ printf "{{\\"files\\":%d,\\"words\\":%d}}\\n", NR, words }}' {input} > {output}"""
rule count:
    input: "texts/{name}.txt"
    output: "texts/{name}.count"
    shell: "wc -w < {input} > {output}"
