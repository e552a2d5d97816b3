package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWeakTestsHaveASurvivor(t *testing.T) {
	code, out, _ := mutate(t, "./weak")
	wants(t, out, "seed 1: 1 of 1 mutants", "SURVIVED  weak/fits.go:3  compare  return n <= limit → return n < limit",
		"killed 0 of 1 mutants: 0.0 % (at least 85 % wanted); survived 1")
	if code != exitTooFew {
		t.Errorf("exit code %d, want %d", code, exitTooFew)
	}
	if code, _, _ := mutate(t, "-least", "0", "./weak"); code != exitEnough {
		t.Errorf("exit code %d with nothing wanted, want %d", code, exitEnough)
	}
}

func TestGoodTestsKill(t *testing.T) {
	code, out, _ := mutate(t, "good:fits.go")
	wants(t, out, "killed    good/fits.go:3", "by TestFits", "killed 1 of 1 mutants: 100.0 %")
	if code != exitEnough {
		t.Errorf("exit code %d, want %d", code, exitEnough)
	}
}

// A test that fails for reasons of its own, and then no more, has killed nothing.
func TestChanceKillsNothing(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	t.Setenv("PLANTED_RUNS", runs)
	_, out, _ := mutate(t, "./odd")
	wants(t, out, "killed 0 of 1")
	if b, err := os.ReadFile(runs); err != nil || len(b) != 4 { // as it is, with the mutant, the one test again, all again
		t.Errorf("%d runs, want 4, err %v", len(b), err)
	}
}

func TestOtherPackagesGuard(t *testing.T) {
	code, out, _ := mutate(t, "-tests", "./guard", "./weak")
	wants(t, out, "planted/guard: its tests pass", "killed 1 of 1", "by TestGuard")
	if code != exitEnough {
		t.Errorf("exit code %d, want %d", code, exitEnough)
	}
}

func TestSomeTestsFirst(t *testing.T) {
	for _, first := range []string{"NoSuchTest", "TestFits"} {
		code, out, _ := mutate(t, "-first", first, "./good")
		wants(t, out, "killed 1 of 1", "by TestFits")
		if code != exitEnough {
			t.Errorf("-first %s: exit code %d, want %d", first, code, exitEnough)
		}
	}
}

func TestHangIsAKill(t *testing.T) {
	code, out, _ := mutate(t, "-timeout", "1s", "./loop")
	wants(t, out, "negate  more() → !(more())", "by time", "killed 1 of 1", "1 of the killed by the time limit")
	if code != exitEnough {
		t.Errorf("exit code %d, want %d", code, exitEnough)
	}
}

// What would take the memory of the machine ends for want of it.
func TestGreedIsAKill(t *testing.T) {
	code, out, _ := mutate(t, "-n", "1", "-seed", "2", "-timeout", "10m", "./eats")
	wants(t, out, "negate  full() → !(full())", "killed 1 of 1", "0 of the killed by the time limit")
	if code != exitEnough {
		t.Errorf("exit code %d, want %d", code, exitEnough)
	}
}

func TestWhatDoesNotCompileIsNone(t *testing.T) {
	code, out, errs := mutate(t, "./words")
	wants(t, out, "1 of 1 mutants")
	wants(t, errs, "no mutant was tried to its end")
	if code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	code, out, _ = mutate(t, "-n", "1", "-p", "2", "./words", "./good")
	wants(t, out, "1 of 2 mutants", "killed 1 of 1")
	if code != exitEnough {
		t.Errorf("exit code %d, want %d", code, exitEnough)
	}
}

func TestNothingIsSaidOfWhatFailsAnyway(t *testing.T) {
	for pkg, want := range map[string]string{
		"./bad":             "the tests of planted/bad fail as they are: TestFits",
		"./none":            "planted/none has no tests",
		"./nowhere":         "nowhere",
		"./good:missing.go": `no file "missing.go"`,
		"./guard":           "nothing to change",
	} {
		code, _, errs := mutate(t, pkg)
		wants(t, errs, want)
		if code != exitFailed {
			t.Errorf("%s: exit code %d, want %d", pkg, code, exitFailed)
		}
	}
}

func TestJSON(t *testing.T) {
	_, out, errs := mutate(t, "-n", "0", "-p", "2", "--json", "./weak", "./good")
	wants(t, errs, "seed 1: 2 of 2 mutants", "killed 1 of 2 mutants: 50.0 %")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2: %s", len(lines), out)
	}
	killed := map[string]string{}
	for _, l := range lines {
		var v struct {
			Package, File, Kind, Before, After, By string
			Line                                   int
			Seconds                                float64
			Killed                                 bool
		}
		if err := json.Unmarshal([]byte(l), &v); err != nil {
			t.Fatal(err)
		}
		if v.Kind != string(compare) || v.Line != 3 || v.Before != "return n <= limit" || v.After != "return n < limit" || v.Seconds <= 0 || v.Killed != (v.By != "") {
			t.Errorf("%s", l)
		}
		killed[v.Package+"/"+v.File] = v.By
	}
	if killed["planted/weak/weak/fits.go"] != "" || killed["planted/good/good/fits.go"] != "TestFits" {
		t.Errorf("by = %v", killed)
	}
}

func TestList(t *testing.T) {
	code, out, _ := mutate(t, "-list", "./bad", "./none")
	wants(t, out, "bad/fits.go:3", "none/fits.go:3", "2 mutants")
	if code != exitEnough {
		t.Errorf("exit code %d, want %d", code, exitEnough)
	}
}

// Ctrl-C while a mutant is tried ends that, and the summary tells of those before.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dir := planted(t)
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("GOFLAGS", "")
	out, errs := &watched{word: "1/2", then: cancel}, &watched{}
	code := run(ctx, dir, []string{"-seed", "1", "-n", "2", "./weak", "./good"}, out, errs)
	if code != exitInterrupted {
		t.Errorf("exit code %d, want %d", code, exitInterrupted)
	}
	wants(t, out.String(), "of 1 mutants")
	wants(t, errs.String(), "interrupted")
}

// watched calls then once a word has been written.
type watched struct {
	strings.Builder
	word string
	then func()
}

func (w *watched) Write(b []byte) (int, error) {
	if w.then != nil && strings.Contains(string(b), w.word) {
		w.then()
	}
	return w.Builder.Write(b)
}

func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{
		{}, {"-n", "-1", "x"}, {"-p", "0", "x"}, {"-p", "3", "x"}, {"-timeout", "0", "x"}, {"-least", "101", "x"}, {"-first", "(", "x"}, {"-what", "x"},
	} {
		var errs strings.Builder
		if code := run(t.Context(), ".", args, &errs, &errs); code != exitFailed || errs.Len() == 0 {
			t.Errorf("%q: exit code %d, %q", args, code, errs.String())
		}
	}
	var help strings.Builder
	if code := run(t.Context(), ".", []string{"-h"}, &help, &help); code != exitEnough {
		t.Errorf("-h: exit code %d", code)
	}
	wants(t, help.String(), "usage: ronmutate", "-seed", "-least")
}
