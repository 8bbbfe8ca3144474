// Package alerts tests what deploy/ has for Prometheus and Grafana: the alerts, by promtool, and the dashboard. With -full a real
// Prometheus scrapes real members while ZooKeeper, Kafka and handlers fail, each alert has to fire and to end, and each panel of
// the dashboard to show something.
package alerts
