// Package health answers over HTTP what an orchestrator, a load balancer and an operator ask a process: whether it runs, whether
// it is ready, and what its group looks like.
//
// # Overview
//
//	go http.ListenAndServe("localhost:9400", health.Handler(group)) // a *consumer.Group
//
//	GET /healthz          200 while the sources' loops answer, else 503
//	GET /readyz           200 when the member has joined and its first claims are decided, else 503
//	GET /status?pretty    the group as the member sees it, in JSON (package status)
//
// A 503 says why, in one line of text for each source. consumer.Group, ownership.Owner and allocator.PartitionAllocator are
// sources. [Live], [Ready] and [Status] are the three handlers one by one, for other paths.
//
// /healthz is for a liveness probe: restart the process when it fails. It fails when a loop of a source hangs, when an Owner's
// Run has ended with an error, or when the session of a Group has ended for good: see the method Alive of each source. It never
// fails because ZooKeeper or Kafka can't be reached: then no restart helps.
//
// /readyz is for a readiness probe, and for a rolling deploy that waits for one member before it stops the next. A member is
// ready when its first claims are owned, or can't be owned for a reason that was reported. Later claims do not change the answer.
// A member that has nothing to claim is ready, too.
//
// /status shows names of members, hosts and topics, and texts of errors. The application decides who may see it: where the
// probes' port is open to others, mount Live and Ready alone.
//
// # Guarantees
//
//   - /healthz answers within [Timeout], or when the request ends if that is sooner.
//   - /healthz and /readyz send no request to ZooKeeper or Kafka. No handler changes anything, or lets an answer be cached.
//   - Only GET and HEAD are answered; other methods get 405.
//
// # Not guaranteed
//
//   - A handler that is stuck in user code does not fail /healthz, unless the user's code stops the member's own loops. The alert
//     KielHandlerStuck reports it, and /status names the partition.
//   - /status costs the source some work and memory for each partition of the group. Nothing bounds how often it is asked for.
//
// # Concurrency
//
// Handlers have no goroutine of their own and may serve any number of requests at a time.
package health
