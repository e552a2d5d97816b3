# Turns the lines of Go's benchmark of payments into rows: a name, a rate, and what else was measured, tabs between them.
# -v before=TEXT -v after=TEXT stand around the name.
/^Benchmark/ {
  name = $1; sub(/^BenchmarkMoney\//, "", name); sub(/-[0-9]+$/, "", name); rate = rest = ""
  for (i = 4; i <= NF; i += 2)
    if ($i ~ /^(transfers|reads|requests)\/s$/) rate = sprintf("%.0f %s", $(i-1), $i)
    else if ($i != "ns/op") rest = rest "\t" $(i-1) " " $i
  print before name after "\t" rate rest; fflush(); next
}
/FAIL|_test.go/ { print > "/dev/stderr"; bad = 1 }
END { exit bad }
