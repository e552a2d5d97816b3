package wallet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Who was behind one that turns out to be early waits as long as that one, not after it.
func TestBehindAnEarlyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, with(func(c *Config) { c.WorkerBurst = 1 }))
		g.fund("alice", 100)
		three, four := g.send(context.Background(), 3), g.send(context.Background(), 4)
		close(g.leave)
		most := g.cfg.NonceWait.D() + watchEvery
		if a, b := <-three, <-four; a.code != "NONCE_CONFLICT" || b.code != "NONCE_CONFLICT" || a.after > most || b.after > most {
			t.Errorf("%+v, %+v", a, b)
		}
		g.nothingLeft()
		g.stop()
	})
}

// A job whose time is over while the one before it is with the ledger waits for that one's answer.
func TestTimeOverBehindOneInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, with(func(c *Config) { c.WorkerBurst = 1 }))
		g.fund("alice", 100)
		two := g.send(context.Background(), 2)
		g.leave <- struct{}{} // it is refused, and waits
		synctest.Wait()
		one := g.send(context.Background(), 1)
		time.Sleep(g.cfg.NonceWait.D() + 2*watchEvery)
		g.begun(1, 1) // the second is the one before it
		close(g.leave)
		if a, b := <-one, <-two; a.code != "" || b.code != "" {
			t.Errorf("%+v, %+v", a, b)
		}
		g.nothingLeft()
		g.stop()
	})
}
