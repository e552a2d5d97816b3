package main

import (
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden list of mutants")

func kinds(t *testing.T) (src []byte, found []mutant) {
	t.Helper()
	const path = "testdata/kinds.go"
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found, err = find(mutant{Package: "kinds", File: "kinds.go", path: path}, src)
	if err != nil {
		t.Fatal(err)
	}
	return src, found
}

func TestGoldenKinds(t *testing.T) {
	_, found := kinds(t)
	var b strings.Builder
	for i := range found {
		fmt.Fprintln(&b, &found[i])
	}
	const golden = "testdata/kinds.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != string(want) {
		t.Errorf("mutants differ from %s (-update rewrites it):\n%s", golden, got)
	}
	for _, k := range []kind{negate, compare, logic, compute, constant, boolean, drop, succeed, branch} {
		if !slices.ContainsFunc(found, func(m mutant) bool { return m.Kind == k }) {
			t.Errorf("the source has no mutant of kind %s", k)
		}
	}
}

// Whatever is changed, what comes out is Go, differs from what was there in one place, and no two are the same.
func TestEachMutantIsOneChange(t *testing.T) {
	src, found := kinds(t)
	seen := map[string]string{}
	for i := range found {
		m := &found[i]
		got := string(m.apply(src))
		if got == string(src) {
			t.Errorf("%s: nothing is changed", m)
		}
		if was, ok := seen[got]; ok {
			t.Errorf("%s: the same as %s", m, was)
		}
		seen[got] = m.String()
		if _, err := parser.ParseFile(token.NewFileSet(), "", got, 0); err != nil {
			t.Errorf("%s: %v", m, err)
		}
		if strings.Count(got, "\n") != strings.Count(string(src), "\n") && m.Kind != drop {
			t.Errorf("%s: moves the lines after it", m)
		}
	}
}

func TestShownOnOneLine(t *testing.T) {
	src := []byte("a(\n\tb,\n\t\tc + d,\n)" + strings.Repeat("é", 100))
	at := strings.IndexByte(string(src), '+')
	m := mutant{Kind: compute, start: at, end: at + 1, text: "-"}
	m.show(src, 0, len(src))
	if want := "a( b, c + d, )" + strings.Repeat("é", 27) + "…"; m.Before != want {
		t.Errorf("Before = %q, want %q", m.Before, want)
	}
	if !strings.HasPrefix(m.After, "a( b, c - d") {
		t.Errorf("After = %q", m.After)
	}
}

func TestDrawRepeatsBySeed(t *testing.T) {
	_, found := kinds(t)
	same := func(a, b []mutant) bool { return slices.EqualFunc(a, b, func(a, b mutant) bool { return a == b }) }
	first := draw(found, 7)
	if !same(first, draw(found, 7)) {
		t.Error("the same seed draws others")
	}
	if same(first, draw(found, 8)) {
		t.Error("another seed draws the same")
	}
	if same(first, found) {
		t.Error("nothing is drawn: the order is that of the file")
	}
	sorted := slices.SortedFunc(slices.Values(first), func(a, b mutant) int {
		return strings.Compare(fmt.Sprint(a.start, a.end, a.text), fmt.Sprint(b.start, b.end, b.text))
	})
	if sorted = slices.Compact(sorted); len(sorted) != len(found) {
		t.Errorf("%d different mutants drawn of %d", len(sorted), len(found))
	}
}
