package realkafka_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/test/servers"
)

// aclRig is a Kafka with ACLs. Whoever connects to the plain listener may do all, user may do what allow allows.
type aclRig struct{ *rig }

func newACLRig(t *testing.T, version string) *aclRig {
	t.Helper()
	return &aclRig{newRig(t, servers.KafkaOptions{Version: version, Users: map[string]string{user: password}, Config: map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":           "User:ANONYMOUS",
	}}, 2)}
}

// may lets the user do something with the topic or a group.
func (r *aclRig) may(op sarama.AclOperation, what sarama.AclResourceType, name string) {
	r.t.Helper()
	err := r.admin().CreateACLs([]*sarama.ResourceAcls{{
		Resource: sarama.Resource{ResourceType: what, ResourceName: name, ResourcePatternType: sarama.AclPatternLiteral},
		Acls:     []*sarama.Acl{{Principal: "User:" + user, Host: "*", Operation: op, PermissionType: sarama.AclPermissionAllow}},
	}})
	if err != nil {
		r.t.Fatal(err)
	}
}

// mayNot takes away from the user all that may has given for the topic or a group.
func (r *aclRig) mayNot(what sarama.AclResourceType, name string) {
	r.t.Helper()
	_, err := r.admin().DeleteACL(sarama.AclFilter{
		ResourceType: what, ResourceName: &name, ResourcePatternTypeFilter: sarama.AclPatternLiteral,
		Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAny,
	}, false)
	if err != nil {
		r.t.Fatal(err)
	}
}

// member makes a member of a group that connects as user.
func (r *aclRig) member(group string) *member {
	config := memberConfig()
	withSASL(config, sarama.SASLTypePlaintext, password)
	secure := &rig{t: r.t, zk: r.zk, brokers: r.kafka.SecureBrokers(servers.ListenerSASL), topic: r.topic, group: group, config: config}
	return secure.member("a")
}

// refused waits for the error of a member that is refused, and checks it.
func (m *member) refused(t *testing.T, what sarama.AclResourceType, name string) {
	t.Helper()
	advice := fmt.Sprintf("Kafka's ACLs must allow READ on %s %q", strings.ToLower(what.String()), name)
	var err error
	select {
	case err = <-m.done:
	case <-time.After(2 * time.Minute):
		t.Fatal("Consume does not return")
	}
	if !errors.Is(err, refusalOf(what)) || !strings.Contains(err.Error(), advice) {
		t.Errorf("%v, want %v with the advice %s", err, refusalOf(what), advice)
	}
	m.done <- nil
	m.leave()
	t.Log(err)
}

// refusalOf returns Kafka's error for a topic, or a group, that a principal may not use.
func refusalOf(what sarama.AclResourceType) error {
	if what == sarama.AclResourceTopic {
		return sarama.ErrTopicAuthorizationFailed
	}
	return sarama.ErrGroupAuthorizationFailed
}

// A refusal by Kafka's ACLs ends Consume: at the start at once, and after a minute when it is withdrawn.
func TestACLs(t *testing.T) {
	t.Parallel()
	longer(t, func(t *testing.T, version string) {
		r := newACLRig(t, version)
		r.produce(1, 0, 1)
		r.atStart(t)
		r.withdrawn(t)
	})
}

// atStart checks all that a principal may lack.
func (r *aclRig) atStart(t *testing.T) {
	t.Helper()
	const describe, read, none = sarama.AclOperationDescribe, sarama.AclOperationRead, sarama.AclOperationUnknown
	for i, c := range []struct {
		topic, group sarama.AclOperation
		what         sarama.AclResourceType // of which READ is missing
	}{
		{none, none, sarama.AclResourceTopic},
		{none, read, sarama.AclResourceTopic},
		{describe, read, sarama.AclResourceTopic},
		{read, none, sarama.AclResourceGroup},
		{read, describe, sarama.AclResourceGroup},
	} {
		group := fmt.Sprint(r.group, i)
		if c.topic != none {
			r.may(c.topic, sarama.AclResourceTopic, r.topic)
		}
		if c.group != none {
			r.may(c.group, sarama.AclResourceGroup, group)
		}
		name := r.topic
		if c.what == sarama.AclResourceGroup {
			name = group
		}
		began := time.Now()
		r.member(group).refused(t, c.what, name)
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("topic %s, group %s: Consume returned after %v", &c.topic, &c.group, d)
		}
		r.mayNot(sarama.AclResourceTopic, r.topic)
	}
}

// withdrawn checks that access that is withdrawn, and given back soon, costs no message and ends nothing; and with -full that it
// ends Consume when it is withdrawn for a minute.
func (r *aclRig) withdrawn(t *testing.T) {
	t.Helper()
	r.may(sarama.AclOperationRead, sarama.AclResourceTopic, r.topic)
	r.may(sarama.AclOperationRead, sarama.AclResourceGroup, r.group)
	a := r.member(r.group)
	r.produce(10, 0, 1)
	until(t, "all messages", func() bool { return a.count.Load() == 2*int64(r.written) })
	for what, name := range map[sarama.AclResourceType]string{sarama.AclResourceTopic: r.topic, sarama.AclResourceGroup: r.group} {
		r.mayNot(what, name)
		before := len(a.errors())
		r.produce(10, 0, 1)
		until(t, "both partitions are refused", func() bool {
			refused := map[int32]bool{}
			for _, err := range a.errors()[before:] {
				if e, ok := errors.AsType[*sarama.ConsumerError](err); ok && errors.Is(err, refusalOf(what)) {
					refused[e.Partition] = true
				}
			}
			return len(refused) == 2
		})
		r.may(sarama.AclOperationRead, what, name)
		until(t, "all is committed", func() bool {
			return r.committed(0) == int64(r.written) && r.committed(1) == int64(r.written)
		})
	}
	if n := a.count.Load(); n < 2*int64(r.written) {
		t.Errorf("%d messages, want %d", n, 2*r.written)
	}
	if *full {
		r.withdrawnForLong(t, a)
		return
	}
	a.leave()
}

// withdrawnForLong withdraws the group from a, and then the topic from another member.
func (r *aclRig) withdrawnForLong(t *testing.T, a *member) {
	t.Helper()
	r.may(sarama.AclOperationRead, sarama.AclResourceGroup, "h")
	b := r.member("h")
	until(t, "all messages", func() bool { return b.count.Load() == 2*int64(r.written) })
	for _, c := range []struct {
		member *member
		what   sarama.AclResourceType
		name   string
	}{{a, sarama.AclResourceGroup, r.group}, {b, sarama.AclResourceTopic, r.topic}} {
		began := time.Now()
		r.mayNot(c.what, c.name)
		r.produce(10, 0, 1)
		c.member.refused(t, c.what, c.name)
		if d := time.Since(began); d < time.Minute || d > 90*time.Second {
			t.Errorf("refused %s: Consume returned after %v", c.name, d)
		}
	}
}
