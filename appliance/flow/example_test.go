package flow_test

import (
	"context"
	"fmt"
	"time"

	"ronbox/appliance/flow"
)

// A handler puts a job into a bounded queue and waits for its one answer. A supervised task does
// the job. Closing the queue drains the task.
func Example() {
	type job struct {
		n     int
		reply *flow.Reply[int]
	}
	catalog := flow.NewCatalog(nil, nil)
	work := flow.NewQueue[job](catalog, flow.Spec{
		Service: "example", Name: "work_tx", Cap: 8, Policy: flow.RejectNew,
		Producers: []string{flow.HTTP}, Consumers: []string{"worker"}, Doc: "numbers to square",
	})
	ctx := context.Background()
	tasks := flow.NewSupervisor(ctx, catalog, flow.Hooks{})
	defer tasks.Close()
	tasks.Start(flow.Task{Service: "example", Name: "worker", Run: func(ctx context.Context) error {
		return work.Each(ctx, func(j job) {
			if j.reply.Claim() { // false if the caller has left
				j.reply.Answer(j.n * j.n)
			}
		})
	}})

	j := job{n: 7, reply: flow.NewReply[int]()}
	if err := work.TrySend(j); err != nil { // flow.ErrBusy if the queue is full
		fmt.Println(err)
		return
	}
	square, err := j.reply.Wait(ctx)
	fmt.Println(square, err)
	work.Close()
	fmt.Println("aborted tasks:", tasks.Drain("example", time.Second, time.Second))
	// Output:
	// 49 <nil>
	// aborted tasks: 0
}
