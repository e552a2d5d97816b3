package registry

import (
	"context"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/follow"
	"ronbox/engines/registry/retain"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/seal"
	"ronbox/engines/registry/tables"
)

const (
	TaskPublisher = taskPublisher
	RecoverSlice  = recoverSlice
	MarkEvery     = markEvery
)

var ErrNoHead, ErrMoving = errNoHead, errMoving

func (e *Engine) Pub() *tables.Published                       { return &e.pub }
func (e *Engine) Seal() *seal.Sealer                           { return e.seal }
func (e *Engine) Retainer() *retain.Retainer                   { return e.retain }
func (e *Engine) Follower() *follow.Follower                   { return e.follow }
func (e *Engine) FollowRule() *follow.Rule                     { return &e.followRule }
func (e *Engine) ChainError() *atomic.Pointer[string]          { return &e.chainError }
func (e *Engine) Told() *atomic.Uint64                         { return &e.told }
func (e *Engine) VerifiedTo() *atomic.Uint64                   { return &e.verifiedTo }
func (e *Engine) Committed() *flow.Broadcast[document.Update]  { return e.committed }
func (e *Engine) ReadSlots() *flow.Slots                       { return e.readSlots }
func (e *Engine) Tell(ctx context.Context, ev document.Update) { e.tell(ctx, ev) }

var (
	CheckGenesis = (*Engine).checkGenesis
	Covered      = (*Engine).covered
	VerifyFrom   = (*Engine).verifyFrom
	NewPass      = (*Engine).newPass
	ResumePass   = (*Engine).resumePass
	TellAll      = (*Engine).tellAll
)

func (p *pass) Verifier() *rverify.Verifier                  { return p.v }
func (p *pass) Begun() time.Time                             { return p.begun }
func (p *pass) Marked() uint64                               { return p.marked }
func (p *pass) Over(now time.Time, every time.Duration) bool { return p.over(now, every) }
