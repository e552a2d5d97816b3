package member

import (
	"strings"
	"testing"
	"time"

	"ronbox/engines/cluster"
)

// The next life counts the ends of the earlier ones. It rests if it was unfit as the leader, and not
// because it was told to yield.
func TestLivesAreCounted(t *testing.T) {
	t.Setenv(envEnded, "asked=2,lost=1")
	for why, want := range map[cluster.Reason]string{
		cluster.ReasonAsked: "asked=3,lost=1",
		cluster.ReasonUnfit: "asked=2,lost=1,unfit=1",
		cluster.ReasonLost:  "asked=2,lost=2",
	} {
		env := AfterDeposition(why)
		if env[0] != envEnded+"="+want {
			t.Errorf("%s: %q", why, env)
		}
		rests := false
		for _, v := range env[1:] {
			rests = restsFor(strings.TrimPrefix(v, envDeposed+"="), SinceMachineStart()) > 0
		}
		if rests != (why == cluster.ReasonUnfit) {
			t.Errorf("%s: rests %v by %q", why, rests, env)
		}
	}
	if got := countedEndings("asked=x,=3,unfit"); len(got) != 1 {
		t.Errorf("counts of what is no count: %v", got)
	}
}

// Two depositions within a minute let the next life rest for a minute after the second.
func TestRestlessLivesRest(t *testing.T) {
	text := noteDeposed("", 10*time.Second)
	for _, tt := range []struct{ second, now, want time.Duration }{
		{69 * time.Second, 70 * time.Second, 59 * time.Second},
		{69 * time.Second, 150 * time.Second, 0},
		{71 * time.Second, 72 * time.Second, 0},
	} {
		if got := restsFor(noteDeposed(text, tt.second), tt.now); got != tt.want {
			t.Errorf("%+v: rests for %s", tt, got)
		}
	}
	for _, text := range []string{"", text, ",", "a,b", "1,2,3"} {
		if got := restsFor(text, time.Second); got != 0 {
			t.Errorf("%q: rests for %s", text, got)
		}
	}
}
