# Environments: torch
"""PyTorch's optimizers and schedulers as update rules: the same bits in pieces, or refused by name."""

import unittest
import warnings
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn, optim
from torch.optim import lr_scheduler as schedules

from bellwether import BellwetherError
from bellwether._torch_rules import OwnRule, Table, restore, tabulate, translated

torch.set_num_threads(1)

Make = Callable[[Any], optim.Optimizer]

ACCEPTED: dict[str, Make] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4, dampening=0.1),
    "SGD with Nesterov's momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
    "Adam": lambda p: optim.Adam(p, lr=1e-3),
    "AdamW": lambda p: optim.AdamW(p, lr=1e-3, weight_decay=0.1),
    "AdamW foreach": lambda p: optim.AdamW(p, lr=1e-3, foreach=True),
    "AdamW amsgrad": lambda p: optim.AdamW(p, lr=1e-3, amsgrad=True),
    "RAdam": lambda p: optim.RAdam(p, lr=1e-2),
    "NAdam": lambda p: optim.NAdam(p, lr=1e-2),
    "Adamax": lambda p: optim.Adamax(p, lr=1e-2),
    "RMSprop": lambda p: optim.RMSprop(p, lr=1e-3, momentum=0.9, centered=True),
    "Adagrad": lambda p: optim.Adagrad(p, lr=1e-2, lr_decay=0.1, initial_accumulator_value=0.3),
    "Adadelta": lambda p: optim.Adadelta(p),
    "Rprop": lambda p: optim.Rprop(p),
    "ASGD": lambda p: optim.ASGD(p, t0=2),
}


class Norm(optim.Optimizer):
    """A rule that keeps a number of its own which depends on the gradients."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["sum"] = state.get("sum", 0.0) + float(p.grad.sum())
                p.data.sub_(p.grad, alpha=group["lr"])


REFUSED: dict[str, Make] = {
    "Adafactor looks at whole tensors": lambda p: optim.Adafactor(p),
    "Muon cannot update a part": lambda p: optim.Muon([q for q in p if q.dim() == 2]),
    "LBFGS cannot update a part": lambda p: optim.LBFGS(p),
    "SparseAdam cannot update a part": lambda p: optim.SparseAdam(p),
    "Norm cannot be applied in pieces (it keeps a number": lambda p: Norm(p),
}


def network() -> nn.Module:
    """A small network with the same weights each time."""
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3))


def flat(tensors: Iterable[torch.Tensor]) -> Any:
    """Tensors as one vector."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).numpy()


class Twins:
    """A network trained by its optimizer, and the same by the rule in pieces, on the same gradients."""

    def __init__(self, make: Callable[[nn.Module], optim.Optimizer], warm: int = 0) -> None:
        self.model = network()
        self.optimizer = make(self.model)
        self.random = torch.Generator().manual_seed(1)
        for _ in range(warm):
            self.step_model(self.gradient())
        named = list(self.model.named_parameters())
        self.rule = OwnRule(self.optimizer, named, tabulate(self.optimizer, None, 1))
        self.parameters = flat(self.model.parameters()).copy()
        self.slots = [np.zeros_like(self.parameters) for _ in self.rule.slots]

    def gradient(self) -> Any:
        """The next gradient, flat."""
        return torch.randn(sum(p.numel() for p in self.model.parameters()), generator=self.random)

    def step_model(self, gradient: torch.Tensor) -> None:
        """One step of PyTorch's own."""
        parts = gradient.split([p.numel() for p in self.model.parameters()])
        for parameter, part in zip(self.model.parameters(), parts, strict=True):
            parameter.grad = part.view_as(parameter).clone()
        self.optimizer.step()

    def step_pieces(self, step: int, gradient: torch.Tensor, cuts: tuple[int, ...]) -> None:
        """The same step in pieces."""
        bounds = [0, *cuts, len(self.parameters)]
        for start, end in pairwise(bounds):
            part = slice(start, end)
            slots = [slot[part] for slot in self.slots]
            self.rule.apply(step, start, self.parameters[part], slots, gradient.numpy()[part].copy())

    def agree(self) -> bool:
        """Whether both have the same bits."""
        return bool(flat(self.model.parameters()).tobytes() == self.parameters.tobytes())


class Rules(unittest.TestCase):
    """Optimizers in pieces."""

    def test_element_wise_rules_give_pytorchs_own_bits_in_pieces(self) -> None:
        for name, make in ACCEPTED.items():
            with self.subTest(name):
                twins = Twins(lambda model, make=make: make(model.parameters()))  # type: ignore[misc]
                for step in range(6):
                    gradient = twins.gradient()
                    twins.step_pieces(step, gradient, ((10, 33), (1,), ())[step % 3])
                    twins.step_model(gradient)
                    self.assertTrue(twins.agree(), f"step {step}")

    def test_a_newcomer_goes_on_at_any_step(self) -> None:
        for name in ("NAdam", "ASGD", "RAdam"):
            twins = Twins(lambda model, name=name: ACCEPTED[name](model.parameters()))  # type: ignore[misc]
            for step in range(4):
                gradient = twins.gradient()
                twins.step_model(gradient)
                twins.step_pieces(step, gradient, (10,))
                # What is not kept in slots must follow from the step alone.
                fresh = ACCEPTED[name](network().parameters())
                named = [(n, p) for group in fresh.param_groups for n, p in enumerate(group["params"])]
                twins.rule = OwnRule(
                    fresh, [(str(n), p) for n, p in named], Table([[fresh.param_groups[0]["lr"]]])
                )
            self.assertTrue(twins.agree(), name)

    def test_a_fused_rule_is_unfused(self) -> None:
        self.assertTrue(Twins(lambda model: optim.AdamW(model.parameters(), fused=True)).rule.slots)

    def test_groups_have_their_own_settings(self) -> None:
        def make(model: nn.Module) -> optim.Optimizer:
            biases = [p for p in model.parameters() if p.dim() == 1]
            matrices = [p for p in model.parameters() if p.dim() == 2]
            return optim.RMSprop(
                [{"params": matrices, "weight_decay": 0.1}, {"params": biases, "lr": 0.05}], lr=0.01
            )

        twins = Twins(make)
        for step in range(4):
            gradient = twins.gradient()
            twins.step_model(gradient)
            twins.step_pieces(step, gradient, (20, 37))
        self.assertTrue(twins.agree())

    def test_an_optimizer_that_has_begun_goes_on(self) -> None:
        twins = Twins(lambda model: optim.NAdam(model.parameters(), lr=0.01), warm=3)
        for step in range(3):
            gradient = twins.gradient()
            twins.step_pieces(step, gradient, (11,))
            twins.step_model(gradient)
            self.assertTrue(twins.agree(), f"step {step}")

    def test_others_are_refused_by_name(self) -> None:
        for what, make in REFUSED.items():
            with self.subTest(what), self.assertRaises(BellwetherError) as raised:
                Twins(lambda model, make=make: make(list(model.parameters())))  # type: ignore[misc]
            self.assertIn(what, str(raised.exception))

    def test_a_parameter_in_no_group_is_named(self) -> None:
        with self.assertRaises(BellwetherError) as raised:
            Twins(lambda model: optim.RAdam([p for p in model.parameters() if p.dim() == 2]))
        self.assertIn("0.bias is trained and in no group of RAdam", str(raised.exception))

    def test_a_checkpoints_slots_go_back_into_the_optimizer(self) -> None:
        twins = Twins(lambda model: optim.NAdam(model.parameters(), lr=0.01))
        for step in range(3):
            gradient = twins.gradient()
            twins.step_model(gradient)
            twins.step_pieces(step, gradient, ())
        model = network()
        plain = optim.NAdam(model.parameters(), lr=0.01)
        named = list(model.named_parameters())
        sizes = [p.numel() for _, p in named]
        slots = {
            f"{slot}/{name}": part.view_as(p)
            for slot, values in zip(twins.rule.slots, twins.slots, strict=True)
            for (name, p), part in zip(named, torch.from_numpy(values).split(sizes), strict=True)
        }
        restore(plain, named, 3, slots)
        theirs = twins.optimizer.state_dict()["state"]
        for number, state in plain.state_dict()["state"].items():
            for key, value in state.items():
                self.assertTrue(
                    torch.equal(torch.as_tensor(value), torch.as_tensor(theirs[number][key])), key
                )


class Translations(unittest.TestCase):
    """Optimizers that are the runtime's own rules."""

    def translate(self, make: Make, clip_norm: float | None = None) -> Any:
        optimizer = make(list(network().parameters()))
        return translated(optimizer, tabulate(optimizer, None, 3), clip_norm)

    def test_three_rules_are_the_runtimes_own(self) -> None:
        rule, schedule = self.translate(ACCEPTED["AdamW"], 2.0)
        self.assertEqual(schedule, None)
        adam = {"betas": [0.9, 0.999], "epsilon": 1e-8}
        wanted = {"kind": "adamw", "learning_rate": 1e-3, "weight_decay": 0.1, "clip_norm": 2.0}
        self.assertEqual(rule, wanted | adam)
        rule, _ = self.translate(lambda p: optim.SGD(p, lr=0.5, momentum=0.9, nesterov=True))
        self.assertEqual((rule["kind"], rule["momentum"], rule["nesterov"]), ("sgd", 0.9, True))
        self.assertEqual(self.translate(ACCEPTED["Adam"])[0]["kind"], "adam")

    def test_what_the_runtime_has_not_stays_the_users(self) -> None:
        for make in (ACCEPTED["AdamW amsgrad"], ACCEPTED["SGD with momentum"], ACCEPTED["RAdam"]):
            self.assertIsNone(self.translate(make))
        self.assertIsNone(self.translate(lambda p: optim.AdamW([{"params": p[:2]}, {"params": p[2:]}])))

    def test_a_schedule_is_a_table_of_factors(self) -> None:
        optimizer = optim.SGD(network().parameters(), lr=0.5)
        scheduler = schedules.MultiStepLR(optimizer, [1, 3], gamma=0.5)
        found = translated(optimizer, tabulate(optimizer, scheduler, 9), None)
        assert found is not None
        self.assertEqual(found[1], {"kind": "table", "factors": [1.0, 0.5, 0.5, 0.25]})


Schedule = Callable[[optim.Optimizer], Any]

BY_STEP: dict[str, Schedule] = {
    "cosine": lambda o: schedules.CosineAnnealingLR(o, T_max=20),
    "steps": lambda o: schedules.StepLR(o, 7, 0.3),
    "lambda": lambda o: schedules.LambdaLR(o, lambda step: 1 / (1 + step)),
    "exponential": lambda o: schedules.ExponentialLR(o, 0.9),
    "restarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 6),
    "one cycle": lambda o: schedules.OneCycleLR(o, 0.4, total_steps=40, cycle_momentum=False),
    "warm-up, then linear": lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o, 0.1, total_iters=5), schedules.LinearLR(o, 1.0, 0.0, total_iters=25)], [5]
    ),
    "chained": lambda o: schedules.ChainedScheduler(
        [schedules.ConstantLR(o, 0.2, 4), schedules.StepLR(o, 9)]
    ),
}


class Schedules(unittest.TestCase):
    """Schedulers as tables."""

    def setUp(self) -> None:
        warnings.simplefilter("ignore")
        parameters = list(network().parameters())
        groups: list[dict[str, Any]] = [{"params": parameters[:1], "lr": 0.3}, {"params": parameters[1:]}]
        self.optimizer = optim.SGD(groups, lr=0.1, momentum=0.9)

    def test_a_table_is_what_the_scheduler_does(self) -> None:
        for name, make in BY_STEP.items():
            for period in (1, 5):
                with self.subTest(name, period=period):
                    self.setUp()
                    scheduler = make(self.optimizer)
                    table = tabulate(self.optimizer, scheduler, 33, period)
                    for step in range(33):
                        if step and step % period == 0:
                            scheduler.step()
                        for number, group in enumerate(self.optimizer.param_groups):
                            self.assertEqual(table.rate(number, step), group["lr"])

    def test_those_that_look_at_more_are_refused(self) -> None:
        plateau = schedules.ReduceLROnPlateau(self.optimizer)
        with self.assertRaisesRegex(BellwetherError, "ReduceLROnPlateau looks at a metric"):
            tabulate(self.optimizer, plateau, 3)
        cycle = schedules.OneCycleLR(self.optimizer, 0.4, total_steps=40)
        with self.assertRaisesRegex(BellwetherError, "OneCycleLR moves more than the learning rate"):
            tabulate(self.optimizer, cycle, 30)


if __name__ == "__main__":
    unittest.main()
