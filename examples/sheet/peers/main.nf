process TRIM {
    publishDir 'trimmed', mode: 'copy'
    input:
    tuple val(meta), path(pair)
    output:
    tuple val(meta), path("${meta.sample}.fq")
    script:
    """
    cat $pair | awk 'NR % 2 == 0 && !/^\\+/ { \$0 = substr(\$0, 3) } { print }' > ${meta.sample}.fq
    """
}
process COUNT {
    input:
    tuple val(meta), path(trimmed)
    output:
    path "${meta.sample}.csv"
    script:
    """
    awk -v row="${meta.sample},${meta.strandedness}" 'NR % 4 == 2 { n += length } END { print row "," n }' \
      $trimmed > ${meta.sample}.csv
    """
}
process REPORT {
    publishDir '.', mode: 'copy'
    input:
    path counts
    output:
    path 'report.csv'
    script:
    """
    (echo sample,strandedness,bases; cat $counts) > report.csv
    """
}
workflow {
    samples = Channel.fromPath('samples.csv').splitCsv(header: true)
        .map { row -> tuple(row, [file(row.fq1), file(row.fq2)]) }
    REPORT(COUNT(TRIM(samples)).collect(sort: { it.name }))
}
