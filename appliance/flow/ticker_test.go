package flow

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTicker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tick := Every(NewCatalog(nil, nil), Spec{Service: "wallet", Name: "metrics_tick"}, time.Second)
		time.Sleep(time.Minute) // nothing ticks before C
		start := time.Now()
		<-tick.C()
		if d := time.Since(start); d != time.Second {
			t.Errorf("first tick after %v", d)
		}
		time.Sleep(10 * time.Second) // misses ten, which merge into one
		<-tick.C()
		if at := <-tick.C(); at.Sub(start) != 12*time.Second {
			t.Errorf("tick at %v", at.Sub(start))
		}
		tick.Stop()
		tick.Stop()
		time.Sleep(time.Minute)
		start = time.Now()
		if at := <-tick.C(); at.Sub(start) != time.Second {
			t.Errorf("first tick of the new period after %v", at.Sub(start))
		}
		tick.Stop()
	})
	c := NewCatalog(nil, nil)
	if text := wantPanic(t, func() { Every(c, Spec{Service: "t", Name: "x"}, 0) }); !strings.Contains(text, "positive period") {
		t.Errorf("panic = %q", text)
	}
}
