"""MTP chains unrolled for training: the same function as a chain that drafts."""

import pytest
import torch
from conftest import SMALL, sharpened

from specmtp.decoding.loop import Decoder
from specmtp.decoding.mtp_drafter import MTPDrafter
from specmtp.decoding.noise import noise_stream
from specmtp.decoding.sampling import Sampler
from specmtp.nn.mtp import MultiTokenGPT


@pytest.mark.parametrize(("depth", "shared"), [(1, False), (2, False), (2, True), (3, False)])
@pytest.mark.parametrize("length", [3, 9, 40])
def test_an_unrolled_forward_gives_what_decoding_drafts_from(depth: int, shared: bool, length: int) -> None:
    torch.manual_seed(depth)
    net, gamma = sharpened(MultiTokenGPT(SMALL, depth, shared)).eval(), 5
    text = torch.randint(SMALL.vocab_size, (1, length)).tolist()
    with torch.inference_mode():
        decoder = Decoder(net.gpt, MTPDrafter(net, gamma))
        state, _ = decoder.prefill(text)
        noise = next(noise_stream(7, 1, gamma, torch.device("cpu")))
        proposal = decoder.drafter.propose(state, Sampler(), noise.draft_v_BG)
        whole_BT = torch.cat([torch.tensor(text), proposal.drafts_BG], 1)
        logits = net(whole_BT, num_drafts=gamma)
    for k in range(1, gamma + 1):
        torch.testing.assert_close(proposal.q_BGV[0, k - 1], logits[k][0, length - 2].softmax(-1), atol=2e-6, rtol=1e-4)


def test_no_more_drafts_than_depths_is_the_usual_forward() -> None:
    torch.manual_seed(0)
    net, ids_BT = MultiTokenGPT(SMALL, 2).eval(), torch.randint(SMALL.vocab_size, (2, 12))
    usual, more = net(ids_BT), net(ids_BT, num_drafts=4)
    assert [x.shape[1] for x in more] == [12, 11, 10, 9, 8]
    for a, b in zip(usual, more, strict=False):
        torch.testing.assert_close(a, b)
    assert len(net(ids_BT[:, :3], num_drafts=8)) == 3


def test_gradients_flow_through_the_whole_chain() -> None:
    torch.manual_seed(0)
    net, ids_BT = MultiTokenGPT(SMALL, 1), torch.randint(SMALL.vocab_size, (2, 12))
    hidden_BTD = net.gpt.hidden(ids_BT).detach().requires_grad_()
    net.gpt.hidden = lambda _: hidden_BTD  # type: ignore[method-assign, assignment]
    net(ids_BT, num_drafts=4)[4][:, 3].sum().backward()
    assert hidden_BTD.grad is not None
    reached_T = hidden_BTD.grad.abs().sum((0, 2)) > 0
    assert reached_T[:4].all() and not reached_T[4:].any()  # row 3 chains from row 3's own hidden state on
