// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>&1 | filecheck %s

// The program's own loop carries the big tensor from step to step and treats its rows alike: it is cut along them.

// CHECK: %[[OUT:.*]]:2 = stablehlo.while({{.*}}) : tensor<i32>, tensor<256xf32>
// CHECK: %[[ROWS:.*]] = stablehlo.dynamic_slice %arg0, %[[START:.*]], {{.*}} sizes = [32, 200]
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %[[ROWS]]) : tensor<i32>, tensor<32x200xf32>
// CHECK: %[[NEXT:.*]] = stablehlo.cosine {{.*}} : tensor<32x200xf32>
// CHECK: stablehlo.return {{.*}}, %[[NEXT]]
// CHECK: %[[TILE:.*]] = stablehlo.dot_general %[[LOOP]]#1, %arg1
// CHECK: stablehlo.dynamic_update_slice %{{.*}}, %[[TILE]], %[[START]]
// CHECK-NOT: not split

func.func @main(%a: tensor<256x200xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<3> : tensor<i32>
  %loop:2 = stablehlo.while(%i = %i0, %x = %a) : tensor<i32>, tensor<256x200xf32>
    cond {
      %go = stablehlo.compare LT, %i, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %0 = stablehlo.cosine %x : tensor<256x200xf32>
      stablehlo.return %next, %0 : tensor<i32>, tensor<256x200xf32>
    }
  %2 = stablehlo.dot_general %loop#1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %2 : tensor<256xf32>
}
