package appliance

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
)

// soakSample is what the node has at one time.
type soakSample struct {
	rss, anon, goroutines, files, threads int64
}

// grown tells what of a node has grown between the first third of its last life and the last third: between the second quarter of the soak
// and its last one.
func (s *soak) grown(samples []soakSample) (faults []string) {
	third := len(samples) / 3
	for _, of := range []struct {
		name  string
		get   func(soakSample) int64
		share int64 // of the earlier one, in percent, that the later one may be more
		most  int64 // and besides
	}{
		{"MiB of its own memory", func(s soakSample) int64 { return s.anon }, 20, 16}, // the collector lets garbage grow to as much as lives, and returns it late
		{"goroutines", func(s soakSample) int64 { return s.goroutines }, 0, 10},       // two of each connection, of which there are seven and a scrape
		{"open files", func(s soakSample) int64 { return s.files }, 0, 4},             // a scrape, and a connection that is made anew
		{"threads", func(s soakSample) int64 { return s.threads }, 20, 4},             // Go keeps those that a slow disk once needed
	} {
		early, late := middle(samples[:third], of.get), middle(samples[len(samples)-third:], of.get)
		s.b.Logf("%s: %d, later %d", of.name, early, late)
		if late > early+early*of.share/100+of.most {
			faults = append(faults, fmt.Sprintf("the node had %d %s, and later %d", early, of.name, late))
		}
	}
	return faults
}

func middle(samples []soakSample, get func(soakSample) int64) int64 {
	sorted := slices.SortedFunc(slices.Values(samples), func(a, b soakSample) int { return cmp.Compare(get(a), get(b)) })
	return get(sorted[len(sorted)/2])
}

// What grows is told, and what swings is not.
func TestSoakTells(t *testing.T) {
	s := &soak{bank: &bank{b: t}}
	var steady, leaks []soakSample
	for i := range int64(90) {
		steady = append(steady, soakSample{anon: 60 + 20*(i%3), goroutines: 60 + i%7, files: 19, threads: 9})
		leaks = append(leaks, soakSample{anon: 60 + i, goroutines: 60 + i/3, files: 19 + i/6, threads: 9 + i/6})
	}
	if faults := s.grown(steady); len(faults) > 0 {
		t.Errorf("steady: %q", faults)
	}
	if faults := s.grown(leaks); len(faults) != 4 {
		t.Errorf("leaks: %q", faults)
	}
}
