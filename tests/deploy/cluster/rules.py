"""Rules of nftables for the node, derived from Services and NetworkPolicies as they are rendered.

What cannot be derived is an error, so that nothing of a policy is passed over.
"""


def services(endpoints):
    """Translates a service's address to one of its ready pods, taken in turn.

    `endpoints`: {(service address, port): [(pod address, port), …]}
    """
    lines = []
    for (address, port), pods in sorted(endpoints.items()):
        match = f"ip daddr {address} tcp dport {port}"
        if pods:
            turn = ", ".join(f"{n} : {pod} . {target}" for n, (pod, target) in enumerate(pods))
            lines.append(f"{match} dnat ip to numgen inc mod {len(pods)} map {{ {turn} }}")
        else:
            lines.append(f"{match} reject with tcp reset")
    # A chain of the type nat cannot reject.
    translate = [line for line in lines if " dnat " in line]
    refuse = [line for line in lines if " reject " in line]
    return table("services", [
        ("chain translate", "type nat hook prerouting priority dstnat; policy accept;", translate),
        ("chain refuse", "type filter hook prerouting priority mangle; policy accept;", []),
        ("chain nobody", "type filter hook forward priority mangle; policy accept;", refuse),
    ])


def policies(documents, pods, namespaces):
    """What NetworkPolicies let through to `pods`.

    A pod is a mapping with `address`, `labels`, `namespace` and `ports` (by name); `namespaces` has their labels.
    """
    lines = ["ct state established,related accept"]
    for pod in pods:
        chosen = [policy for policy in documents if selects(policy, pod)]
        if not chosen:
            continue
        to = f"ip daddr {pod['address']}"
        for policy in chosen:
            known(policy["spec"], {"podSelector", "policyTypes", "ingress"})
            assert policy["spec"]["policyTypes"] == ["Ingress"], policy
            for rule in policy["spec"]["ingress"]:
                known(rule, {"ports", "from"})
                ports = ", ".join(str(port_number(port, pod)) for port in rule["ports"])
                match = f"{to} tcp dport {{ {ports} }}"
                if "from" not in rule:
                    lines.append(f"{match} accept")
                for peer in rule.get("from", []):
                    lines += [f"ip saddr {one} {match} accept" for one in
                              peers(peer, policy, pods, namespaces)]
        lines.append(f"{to} drop")
    return table("policies", [
        ("chain forward", "type filter hook forward priority filter; policy accept;", lines),
    ])


def selects(policy, pod):
    return (policy["metadata"].get("namespace", "default") == pod["namespace"]
            and matches(policy["spec"]["podSelector"], pod["labels"]))


def matches(selector, labels):
    known(selector, {"matchLabels"})
    return all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items())


def peers(peer, policy, pods, namespaces):
    known(peer, {"podSelector", "namespaceSelector"})
    own = policy["metadata"].get("namespace", "default")
    for pod in pods:
        if "namespaceSelector" in peer:
            is_there = matches(peer["namespaceSelector"], namespaces[pod["namespace"]])
        else:
            is_there = pod["namespace"] == own
        if is_there and matches(peer.get("podSelector", {}), pod["labels"]):
            yield pod["address"]


def port_number(port, pod):
    known(port, {"port", "protocol"})
    assert port.get("protocol", "TCP") == "TCP", port
    return port["port"] if isinstance(port["port"], int) else pod["ports"][port["port"]]


def known(mapping, keys):
    assert set(mapping) <= keys, f"this test knows nothing of {set(mapping) - keys}"


def table(name, chains):
    text = f"table ip {name}\ndelete table ip {name}\ntable ip {name} {{\n"
    for head, hook, lines in chains:
        body = "".join(f"    {line}\n" for line in lines)
        text += f"  {head} {{\n    {hook}\n{body}  }}\n"
    return text + "}\n"
