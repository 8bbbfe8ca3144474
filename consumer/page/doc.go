// Package page serves a group as a page for people: what is wrong, since when, what waits and what to do, who owns which
// partition, and what has changed. Any member can serve it, and so can a program that is no member. It says the same, in the same
// words, as the command kiel: both show what package inspect finds.
//
// # Overview
//
//	sources := inspect.Sources{Servers: zookeeper, Session: session.Options{Chroot: "/app"}, Brokers: brokers, Config: config}
//	p, err := page.New("orders", sources, page.Options{Self: group}) // group is this process's *consumer.Group, if it is a member
//	…
//	go p.Run(ctx)
//	mux.Handle("/group/", login(p)) // login is your own: the page shows names, hosts, topics and texts of errors
//
// A [Handler] serves the page at each path that ends in a slash, and beside it "page.css", "page.js", "icon.svg", "events" (what
// is new, as server-sent events) and "report.json" (what kiel doctor prints with -o json). All its links are relative: it works
// under any prefix, with or without http.StripPrefix. The page fetches nothing from anywhere else, and needs no script: without
// one it loads itself anew every 5 s.
//
// # Guarantees
//
//   - While nobody watches, nothing is asked, and no connection is open. While somebody does, ZooKeeper and Kafka are asked once
//     per [Options].Refresh, however many watch: ZooKeeper's znodes are read only if they have changed, or were not for half a
//     minute. A look that takes long is followed by a pause as long.
//   - Nothing is written, to ZooKeeper or to Kafka. Only GET and HEAD are answered.
//   - Other members are asked only if Sources.Members is true. Without it the page says so.
//   - At most [Options].MaxViewers are served what is new; others get 503, and their browsers load the page anew now and then. A
//     viewer that takes nothing for 10 s is given up. Each stream ends after 10 minutes, so that a login in front of the page is
//     asked again.
//   - One processor at most makes pages, and each partition is made once per look, however many watch.
//   - Names and texts of others are escaped. The Content-Security-Policy forbids scripts and styles but the page's own.
//
// # Not guaranteed
//
// The page shows what was so a moment ago, and says how long ago. It does not try each ZooKeeper server by itself, compare ACLs,
// or look for the group under other chroots: kiel doctor does.
//
// # Concurrency
//
// Run owns one goroutine's worth of work, the caller's. The Handler may serve any number of requests at a time.
package page
