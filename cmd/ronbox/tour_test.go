package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/host/hosttest"
)

// tourMasks replace values of a tour that differ between runs. They extend the masks of every
// transcript.
var tourMasks = []maskRule{
	{regexp.MustCompile(`(took|after|served) [0-9]+ ms`), "$1 N ms"},
	{regexp.MustCompile(`Ronbox-Age: [0-9.]+`), "Ronbox-Age: AGE"},
	{regexp.MustCompile(`[0-9]+ lookups`), "N lookups"},
	{regexp.MustCompile(`(voter +)(yes|NO) +[0-9]+ +`), "${1}HEALTHY  LAG  "},
	{regexp.MustCompile(`age +[0-9]+s`), "age       AGE"},
	{regexp.MustCompile(`PEER +\S+ +valid +TIME +\S+`), "PEER  REGION  valid  TIME  ADDRESS"}, // the peer that answered last
	{regexp.MustCompile(`(127\.0\.0\.1:PORT) +(\S+) +(\S+) +[0-9]+ +[0-9]+ +`), "$1  $2  $3  N  N  "},
	// peers that never hang, which are late on a busy machine
	{regexp.MustCompile(`(127\.0\.0\.1:PORT  (?:eu-west-1|us-east-1)  closed  N  N  ).+`), "$1"},
	{regexp.MustCompile(`(localhost:PORT +node/\S+ +\S+ +closed) +[0-9]+ +[0-9]+.*`), "$1"},
	{regexp.MustCompile(`(epoch +)[0-9]{8}`), "${1}EPOCH"},
	{regexp.MustCompile(`(rewarder run )[0-9]{8}`), "${1}EPOCH"},
	{regexp.MustCompile(`[0-9]{6,8}\b`), "BYTES"},
	// two files of a Go release may be equal
	{regexp.MustCompile(`new +[0-9]+`), "new       N"},
	{regexp.MustCompile(`0 of [0-9]+`), "0 of N"},
	{regexp.MustCompile(`/tmp/rf\.[A-Za-z0-9]+/`), "DIR/"},
}

// A tour, which the manual names, runs nodes and stops, kills or deceives some of them. It exits with 1 if a
// step fails.
func TestTours(t *testing.T) {
	if !*tours {
		t.Skip("a minute: `make check` runs it, with -tour")
	}
	// on a busy machine a hedged request must not overtake a peer that answers
	slow := []string{"RONBOX_INDEX__DHT__HEDGE_MS=1000", "RONBOX_INDEX__DHT__DEADLINE_MS=5000"}
	t.Run("index", func(t *testing.T) { runTour(t, "index", slow...) })
	t.Run("fleet", func(t *testing.T) {
		hosttest.Tool(t, "openssl", "openssl")
		hosttest.Tool(t, "curl", "curl")
		runTour(t, "fleet", slow...)
	})
	t.Run("archive", func(t *testing.T) { runTour(t, "archive") })
	t.Run("periods", func(t *testing.T) { runTour(t, "periods") })
	t.Run("cluster", func(t *testing.T) {
		hosttest.Tool(t, "curl", "curl")
		runTour(t, "cluster", "RONBOX_CLUSTER__HEARTBEAT=2s") // a leader that lacks a processor stays
	})
}

// runTour runs a script of testdata/tour and compares its output with the file beside it.
func runTour(t *testing.T, name string, env ...string) {
	t.Helper()
	script, file := "../../testdata/tour/"+name+".sh", "../../testdata/tour/"+name+".txt"
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, hosttest.Tool(t, "bash", "bash"), script)
	cmd.Env = append(append(os.Environ(), "RONBOX="+binary), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // so that it ends its nodes
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, errs.String())
	}
	got := (&transcript{vars: map[string]string{"T": "no such text"}}).mask(string(out))
	for _, m := range tourMasks {
		got = m.re.ReplaceAllString(got, m.by)
	}
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the tour differs from %s; run with -update and read the diff. It should be:\n%s", file,
			firstDifference(got, string(want)))
	}
}
